// Functions that instrumented kernels call. kernel_tracing.py inserts this file before
// the kernel, and marks each line as added.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <string>
#include <type_traits>
#include <unistd.h>

namespace shrinkfx { namespace {
inline int& file() { static int number = -1; return number; }
thread_local const char* volatile kernel_at = "?";
thread_local volatile int line_at = -1;
inline void at(const char* kernel, int line) {
  kernel_at = kernel; line_at = line; asm volatile("" ::: "memory");
}
inline struct sigaction* before() { static struct sigaction all[2]; return all; }
inline void on_fault(int number, siginfo_t* what, void*) {
  const char* kernel = kernel_at; const int line = line_at;
  dprintf(file(), "fault %p %s %d\n", what->si_addr, kernel, line);
  sigaction(number, &before()[number == SIGBUS], nullptr);
}
inline bool begin() {
  const char* path = std::getenv("SHRINKFX_TELLING");
  if (path) file() = ::open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (file() < 0) return false;
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &before()[0]);
  sigaction(SIGBUS, &action, &before()[1]);
  return true;
}
inline bool tells() { static const bool does = begin(); return does; }
inline std::string text(const void* value) {
  char digits[32]; std::snprintf(digits, sizeof digits, "%p", value); return digits;
}
template <typename T, typename = void> struct Lanes {
  static constexpr int count = 1;
  static std::string at(const T& value, int) {
    if constexpr (std::is_arithmetic_v<T>) return std::to_string(value);
    else return "?";
  }
};
template <typename T>
struct Lanes<T, std::void_t<typename T::value_type, decltype(T::size()),
    decltype(std::declval<const T&>().store(static_cast<void*>(nullptr)))>> {
  static constexpr int count = T::size();
  static std::string at(const T& value, int lane) {
    typename T::value_type all[T::size()]; value.store(all);
    return Lanes<typename T::value_type>::at(all[lane], 0);
  }
};
template <typename C> bool holds(const C& all, int lane) {
  if constexpr (std::is_convertible_v<C, bool>) return static_cast<bool>(all);
  else return all.is_masked(lane);
}
template <typename V> std::string of_lane(const V& value, int lane, int lanes) {
  const bool fits = Lanes<V>::count == 1 || Lanes<V>::count == lanes;
  return fits ? Lanes<V>::at(value, lane) : "?";
}
inline bool room() {
  static long left = 20000;
  if (left == 0) dprintf(file(), "cut\n");
  return left-- > 0;
}
struct Launch {
  const char* kernel;
  bool told;
  template <typename... V> Launch(const char* name, const char* const* names,
      const V&... values) : kernel(name), told(tells() && room()) {
    if (!told) return;
    std::string line = std::string("launch ") + kernel; int i = 0;
    ((line += std::string(" ") + names[i++] + "=" + values), ...);
    line += "\n"; dprintf(file(), "%s", line.c_str());
  }
  ~Launch() {
    const char* how = std::uncaught_exceptions() ? "threw" : "done";
    if (told) dprintf(file(), "%s %s\n", how, kernel);
  }
};
template <typename C, typename F, typename... V> void check(const char* where,
    const C& all, const char* const* names, const F& first, const V&... values) {
  constexpr int lanes = std::is_convertible_v<C, bool> ? 1 : Lanes<F>::count;
  for (int lane = 0; lane < lanes; ++lane) {
    if (holds(all, lane)) continue;
    if (!tells()) return;
    std::string line = std::string("refused ") + where; int i = 0;
    line += std::string(" ") + names[i++] + "=" + Lanes<F>::at(first, lane);
    ((line += std::string(" ") + names[i++] + "=" + of_lane(values, lane, lanes)), ...);
    line += "\n"; dprintf(file(), "%s", line.c_str()); return;
  }
}
} }
