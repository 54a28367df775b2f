/* What is thrown and caught by nobody ends the process: std::terminate. In an OpenMP
 * region several threads throw at once. libstdc++ has the first one's words written
 * slowly, since what() of PyTorch's errors looks up frames, and the second one, which
 * says "terminate called recursively", aborts meanwhile: the words are lost.
 *
 * Here each thread writes its own words, in one piece:
 *
 *     terminate called in thread 3 of 16 after throwing an instance of 'c10::Error'
 *       what():  index out of bounds: 0 <= tmp2 < 128L
 *     frame #0: ...
 *     (that was thread 3)
 *
 * and the first to come aborts when all of its team have done so, or no other comes.
 */
#include <cxxabi.h>
#include <execinfo.h>
#include <time.h>
#include <typeinfo>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <string>

/* Of whichever OpenMP the process has; null where it has none. */
extern "C" int omp_get_thread_num() __attribute__((weak));
extern "C" int omp_get_num_threads() __attribute__((weak));

namespace {

enum { STEP_MS = 5, QUIET_MS = 500, MOST_MS = 5000, FRAMES = 64 };

std::atomic<int> arrived{0}, told{0};
thread_local bool telling = false;

void write_all(const std::string &text) {
  for (size_t at = 0; at < text.size();) {
    ssize_t written = write(STDERR_FILENO, text.data() + at, text.size() - at);
    if (written <= 0) return;
    at += (size_t)written;
  }
}

std::string name_of(const std::type_info &type) {
  int status = 0;
  char *name = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string text = status == 0 ? name : type.name();
  free(name);
  return text;
}

/* The stack still stands: a region that nothing may leave is not unwound. */
std::string frames() {
  void *found[FRAMES];
  int count = backtrace(found, FRAMES);
  char **names = backtrace_symbols(found, count);
  std::string text;
  for (int at = 0; names && at < count; at++)
    text += "frame #" + std::to_string(at) + ": " + names[at] + "\n";
  free(names);
  return text;
}

std::string what_was_thrown() {
  std::exception_ptr thrown = std::current_exception();
  if (!thrown) return "without an active exception\n" + frames();
  std::string text = "after throwing an instance of '";
  const std::type_info *type = abi::__cxa_current_exception_type();
  text += (type ? name_of(*type) : "unknown") + "'\n";
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception &error) {
    text += std::string("  what():  ") + error.what() + "\n";
  } catch (...) {
  }
  /* PyTorch's own errors know theirs. */
  return text.find("\nframe #") == std::string::npos ? text + frames() : text;
}

void sleep_a_step() {
  timespec step = {0, STEP_MS * 1000000L};
  nanosleep(&step, nullptr);
}

/* Wait until all of a team have told what they threw, or no other one comes. */
void wait_for(int team) {
  int quiet = 0, before = arrived;
  for (int waited = 0; waited < MOST_MS; waited += STEP_MS) {
    bool silent = told == arrived;
    if (silent && (arrived >= team || quiet >= QUIET_MS)) return;
    sleep_a_step();
    quiet = silent && arrived == before ? quiet + STEP_MS : 0;
    before = arrived;
  }
}

[[noreturn]] void tell() {
  if (telling) {
    write_all("terminate called recursively\n");
    abort();
  }
  telling = true;
  bool first = arrived++ == 0;
  int team = omp_get_num_threads ? omp_get_num_threads() : 1;
  std::string number = std::to_string(omp_get_thread_num ? omp_get_thread_num() : 0);
  std::string who = "thread " + number + " of " + std::to_string(team) + " ";
  std::string words = "terminate called in " + who + what_was_thrown();
  write_all(words + "(that was thread " + number + ")\n");
  told++;
  while (!first) pause();
  wait_for(team);
  abort();
}

} // namespace

extern "C" void shrinkfx_keep_words() { std::set_terminate(tell); }
