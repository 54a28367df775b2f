/* What guard_pages.c says of a fault: a line on stderr, without allocating. Each line is
 * written in one piece, because several threads may fault at once. */

typedef struct {
  char text[160];
  size_t length;
} line_t;

static void add(line_t *line, const char *text) {
  while (*text && line->length < sizeof line->text) line->text[line->length++] = *text++;
}

static void add_number(line_t *line, size_t number) {
  char digits[24];
  size_t at = sizeof digits - 1;
  digits[at] = 0;
  do {
    digits[--at] = (char)('0' + number % 10);
  } while (number /= 10);
  add(line, digits + at);
}

static void write_line(line_t *line) {
  add(line, "\n");
  ssize_t ignored = write(STDERR_FILENO, line->text, line->length);
  (void)ignored;
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

static void say_code(size_t code) {
  line_t line = {"", 0};
  add(&line, "guard pages: by the code at ");
  add_number(&line, code);
  write_line(&line);
}

/* A distance of 0 means the byte next to the tensor. */
static void add_place(line_t *line, size_t distance, const char *place, size_t size) {
  if (distance) {
    add(line, " ");
    add_number(line, distance);
    add(line, distance == 1 ? " byte" : " bytes");
  } else {
    add(line, " just");
  }
  add(line, place);
  add_number(line, size);
  add(line, " bytes");
}

static void describe(const char *address, const ucontext_t *context) {
  size_t page = (size_t)(address - arena) / PAGE, last = page, next = page;
  while (last && !sizes[last]) last--;
  while (next < pages && next < page + LEAST_GAP / PAGE && !sizes[next]) next++;
  bool follows = sizes[last] && page < last + all_pages(sizes[last]);
  const char *start = arena + next * PAGE, *end = arena + last * PAGE;
  end += side == BEFORE ? sizes[last] : data_pages(sizes[last]) * PAGE;
  line_t line = {"", 0};
  add(&line, "guard pages: illegal memory access: ");
  add(&line, access_of(context));
  if (side == BEFORE && next < pages && sizes[next] && start - address < address - end)
    add_place(&line, (size_t)(start - address), " before the start of a tensor of ",
              sizes[next]);
  else if (follows)
    add_place(&line, (size_t)(address - end), " past the end of a tensor of ",
              sizes[last]);
  else
    add(&line, " far from any tensor, or in one that was freed");
  write_line(&line);
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
