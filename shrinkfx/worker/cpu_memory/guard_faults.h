/* What guard_pages.c says of a fault: in a line on stderr, without allocating. */

static void say(const char *text) {
  ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
  (void)ignored;
}

static void say_number(size_t number) {
  char digits[24];
  size_t at = sizeof digits - 1;
  digits[at] = 0;
  do {
    digits[--at] = (char)('0' + number % 10);
  } while (number /= 10);
  say(digits + at);
}

static struct sigaction other_handler;

static const char *access_of(const ucontext_t *context) {
#ifdef __x86_64__
  return context->uc_mcontext.gregs[REG_ERR] & 2 ? "write" : "read";
#else
  (void)context;
  return "access";
#endif
}

/* 0 where nobody asks, or where it is not known. */
static size_t code_of(const ucontext_t *context) {
  if (!tells_code) return 0;
#if defined(__x86_64__)
  return (size_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
  return (size_t)context->uc_mcontext.pc;
#else
  return 0;
#endif
}

/* In one piece: several threads may stray at once. */
static void say_code(size_t code) {
  char line[64] = "guard pages: by the code at ";
  size_t start = strlen(line), end = start + 1;
  for (size_t rest = code; rest /= 10;) end++;
  for (size_t at = end; at > start; code /= 10) line[--at] = (char)('0' + code % 10);
  line[end] = '\n';
  ssize_t ignored = write(STDERR_FILENO, line, end + 1);
  (void)ignored;
}

static void say_where(size_t distance, const char *where, size_t size) {
  say(" ");
  say_number(distance);
  say(where);
  say_number(size);
  say(" bytes\n");
}

static void describe(const char *address, const ucontext_t *context) {
  size_t page = (size_t)(address - arena) / PAGE, last = page, next = page;
  while (last && !sizes[last]) last--;
  while (next < pages && next < page + LEAST_GAP / PAGE && !sizes[next]) next++;
  bool follows = sizes[last] && page < last + all_pages(sizes[last]);
  const char *start = arena + next * PAGE, *end = arena + last * PAGE;
  end += side == BEFORE ? sizes[last] : data_pages(sizes[last]) * PAGE;
  say("guard pages: illegal memory access: ");
  say(access_of(context));
  if (side == BEFORE && next < pages && sizes[next] && start - address < address - end)
    say_where((size_t)(start - address), " bytes before a tensor of ", sizes[next]);
  else if (follows)
    say_where((size_t)(address - end), " bytes past a tensor of ", sizes[last]);
  else
    say(" far from any tensor, or of one that was freed\n");
}

static void on_fault(int number, siginfo_t *info, void *context) {
  if (info->si_code <= 0) { /* sent, by the handler that had its turn before us */
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  if (in_arena(info->si_addr)) describe(info->si_addr, context);
  size_t code = code_of(context);
  if (code) say_code(code);
  /* Whoever was there before is asked when the instruction faults again. */
  sigaction(number, &other_handler, NULL);
}

static void watch_faults(void) {
  struct sigaction mine = {.sa_sigaction = on_fault,
                           .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
  struct sigaction now;
  if (sigaction(SIGSEGV, NULL, &now)) return;
  if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault) return;
  other_handler = now;
  sigaction(SIGSEGV, &mine, NULL);
}
