/* Preloaded into a process, this puts each of PyTorch's CPU tensors beside an
 * inaccessible page, so that reading or writing past its end (or, on the other
 * side, before its start) is a segmentation fault each time.
 *
 * PyTorch's allocator asks posix_memalign for an alignment of 64, from libc10.so.
 * Everything else goes on to the C library, as does everything while switched off:
 * oneDNN, which asks likewise, may rely on that alignment.
 *
 * Blocks lie in one reserved range of addresses, the arena:
 *
 *     | data, whole pages | inaccessible, as long as the data | data | ...
 *
 * An address is used again only after QUARANTINE bytes of addresses have been
 * handed out, so that a block that was freed faults, too. What is free is
 * inaccessible and holds no memory. A table beside the arena has a word per page:
 * the size of the block that begins there, or 0.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096, TENSOR_ALIGNMENT = 64, POISON = 0xFF };
enum side { OFF, AFTER, BEFORE };

#define GIB ((size_t)1 << 30)
#define MOST_ADDRESSES (1024 * GIB)
#define LEAST_ADDRESSES (32 * GIB)
#define QUARANTINE (4 * GIB)
#define LEAST_GAP ((size_t)16 * PAGE)
/* Writing to each page of a huge block would make memory of what was only asked
 * for; of those, what lies next to the inaccessible pages is poisoned. */
#define MOST_POISON (256 * ((size_t)1 << 20))

static char *arena;
static size_t pages;    /* in the arena */
static size_t *sizes;   /* per page: bytes of the block that begins there */
static size_t cursor;   /* where the next search begins; never inside a block */
static size_t handed;   /* bytes of addresses since the cursor was at the start */
static size_t quarantine = QUARANTINE;
static size_t grain = 1; /* a block's size is rounded up to a multiple of this */
static enum side side = OFF;
static bool tells_code; /* where the instruction lies that faults */
static const char *caller = "libc10.so"; /* "" for whoever calls */
static uintptr_t caller_from, caller_to;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int (*next_memalign)(void **, size_t, size_t);
static void (*next_free)(void *);
static void *(*next_realloc)(void *, size_t);
static size_t (*next_usable)(void *);

static size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

/* Look a function up when it is first needed: constructors of other libraries run
 * before ours. The look-up itself may free; that little is leaked. */
#define FIND_NEXT(function, name)                                  \
  do {                                                             \
    static __thread bool looking;                                  \
    if (!function && !looking) {                                   \
      looking = true;                                              \
      *(void **)&function = dlsym(RTLD_NEXT, name);                \
      looking = false;                                             \
    }                                                              \
  } while (0)

static bool in_arena(const void *pointer) {
  return arena && (const char *)pointer >= arena &&
         (const char *)pointer < arena + pages * PAGE;
}

/* ---- blocks ---- */

static size_t data_pages(size_t size) { return round_up(size, PAGE) / PAGE; }

static size_t all_pages(size_t size) {
  size_t data = data_pages(size);
  return data + (data * PAGE > LEAST_GAP ? data : LEAST_GAP / PAGE);
}

#include "guard_faults.h"

static void give_up(const char *what) {
  line_t line = {"", 0};
  add(&line, "guard pages: ");
  add(&line, what);
  write_line(&line);
  abort();
}

/* Find the next run of unused pages that is long enough; 0 if there is none.
 * Page 0 stays unused: something inaccessible must precede the first block. */
static size_t search(size_t from, size_t needed) {
  size_t start = from, page = from;
  while (page - start < needed) {
    if (page >= pages) return 0;
    if (sizes[page]) {
      page += all_pages(sizes[page]);
      start = page;
    } else {
      page++;
    }
  }
  return start;
}

static size_t reserve(size_t size) {
  size_t needed = all_pages(size);
  pthread_mutex_lock(&lock);
  if (handed > quarantine) cursor = 1, handed = 0;
  size_t page = search(cursor, needed);
  if (!page && cursor > 1) {
    handed = 0;
    page = search(1, needed);
  }
  if (page) {
    sizes[page] = size;
    cursor = page + needed;
    handed += needed * PAGE;
  }
  pthread_mutex_unlock(&lock);
  return page;
}

static void forget(size_t page) {
  pthread_mutex_lock(&lock);
  sizes[page] = 0;
  pthread_mutex_unlock(&lock);
}

static void poison(char *start, size_t length, enum side where) {
  if (length > MOST_POISON) {
    size_t far = length - MOST_POISON;
    memset(where == AFTER ? start : start + length - PAGE, POISON, PAGE);
    if (where == AFTER) start += far;
    length = MOST_POISON;
  }
  memset(start, POISON, length);
}

/* Return NULL where there are no addresses or no mappings left. */
static void *guarded(size_t asked, enum side where) {
  if (asked > pages * PAGE / 4) return NULL;
  size_t size = round_up(asked, grain), page = reserve(size);
  if (!page) return NULL;
  char *start = arena + page * PAGE;
  size_t length = data_pages(size) * PAGE;
  if (mprotect(start, length, PROT_READ | PROT_WRITE)) {
    forget(page);
    return NULL;
  }
  poison(start, length, where);
  return where == AFTER ? start + length - size : start;
}

static bool is_poison(const char *from, const char *to) {
  for (; from < to; from++)
    if (*(const unsigned char *)from != POISON) return false;
  return true;
}

/* What was written between a block and its page's end faults nowhere, but shows. */
static void check_rest(const char *block, size_t page) {
  const char *start = arena + page * PAGE, *end = start + data_pages(sizes[page]) * PAGE;
  if (!is_poison(start, block))
    give_up("double free or corruption: written before the start of a tensor");
  if (!is_poison(block + sizes[page], end))
    give_up("double free or corruption: written past the end of a tensor");
}

static size_t page_of_block(const char *block) {
  size_t page = (size_t)(block - arena) / PAGE, size = sizes[page];
  const char *start = arena + page * PAGE;
  if (!size || (block != start && block != start + data_pages(size) * PAGE - size))
    give_up("double free or corruption: no tensor begins there");
  return page;
}

/* Give a block's memory back. */
static void release(char *block) {
  size_t page = page_of_block(block);
  check_rest(block, page);
  /* A new mapping gives the memory back, and is one with what is around it. */
  char *start = arena + page * PAGE;
  size_t length = data_pages(sizes[page]) * PAGE;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  if (mmap(start, length, PROT_NONE, flags, -1, 0) == MAP_FAILED) {
    madvise(start, length, MADV_DONTNEED);
    mprotect(start, length, PROT_NONE);
  }
  forget(page);
}

/* ---- what takes the place of the C library's ---- */

static int look_for_caller(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)size, (void)unused;
  if (!strstr(info->dlpi_name, caller)) return 0;
  caller_from = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    uintptr_t end = info->dlpi_addr + part->p_vaddr + part->p_memsz;
    if (part->p_type == PT_LOAD && end > caller_to) caller_to = end;
  }
  return 1;
}

static bool asks_for_tensors(const void *code) {
  if (!*caller) return true;
  if (!caller_to) dl_iterate_phdr(look_for_caller, NULL);
  return (uintptr_t)code >= caller_from && (uintptr_t)code < caller_to;
}

int posix_memalign(void **result, size_t alignment, size_t size) {
  enum side where = side;
  if (arena && where != OFF && alignment == TENSOR_ALIGNMENT && size &&
      asks_for_tensors(__builtin_return_address(0))) {
    void *block = guarded(size, where);
    if (block) {
      *result = block;
      return 0;
    }
  }
  FIND_NEXT(next_memalign, "posix_memalign");
  return next_memalign ? next_memalign(result, alignment, size) : ENOMEM;
}

void free(void *block) {
  int kept = errno;
  if (in_arena(block)) {
    release(block);
  } else {
    FIND_NEXT(next_free, "free");
    if (next_free) next_free(block);
  }
  errno = kept;
}

void *realloc(void *block, size_t size) {
  FIND_NEXT(next_realloc, "realloc");
  if (!in_arena(block)) return next_realloc ? next_realloc(block, size) : NULL;
  size_t old = sizes[page_of_block(block)];
  if (!size) {
    release(block);
    return NULL;
  }
  void *moved = malloc(size);
  if (moved) {
    memcpy(moved, block, old < size ? old : size);
    release(block);
  }
  return moved;
}

size_t malloc_usable_size(void *block) {
  if (in_arena(block)) return sizes[page_of_block(block)];
  FIND_NEXT(next_usable, "malloc_usable_size");
  return next_usable ? next_usable(block) : 0;
}

/* ---- start and switch ---- */

/* Choose what the blocks from now on lie against: OFF, AFTER or BEFORE.
 * Returns whether there are guard pages at all. */
int shrinkfx_guard(int wanted) {
  side = arena ? (enum side)wanted : OFF;
  if (side != OFF) watch_faults();
  return arena != NULL;
}

void shrinkfx_tell_code(void) { tells_code = true; }

static size_t number_from(const char *name, size_t otherwise) {
  const char *text = getenv(name);
  size_t number = text ? strtoull(text, NULL, 10) : 0;
  return number ? number : otherwise;
}

static void map_arena(void) {
  if (sysconf(_SC_PAGESIZE) != PAGE) return;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  for (size_t bytes = MOST_ADDRESSES; bytes >= LEAST_ADDRESSES; bytes /= 2) {
    size_t table = bytes / PAGE * sizeof *sizes;
    void *range = mmap(NULL, bytes, PROT_NONE, flags, -1, 0);
    void *words = mmap(NULL, table, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (range != MAP_FAILED && words != MAP_FAILED) {
      sizes = words;
      pages = bytes / PAGE;
      cursor = 1;
      arena = range;
      madvise(words, table, MADV_NOHUGEPAGE);
      return;
    }
    if (range != MAP_FAILED) munmap(range, bytes);
    if (words != MAP_FAILED) munmap(words, table);
  }
}

/* Children that are other programs get no guard pages unless they are told to. */
static void leave_environment(void) {
  const char *loaded = getenv("LD_PRELOAD"), *mine = getenv("SHRINKFX_GUARD_LIBRARY");
  if (!loaded || !mine) return;
  size_t length = strlen(mine);
  if (strncmp(loaded, mine, length)) return;
  const char *rest = loaded + length;
  if (*rest == ':')
    setenv("LD_PRELOAD", strdup(rest + 1), 1);
  else if (!*rest)
    unsetenv("LD_PRELOAD");
}

static void hold(void) { pthread_mutex_lock(&lock); }
static void let_go(void) { pthread_mutex_unlock(&lock); }

__attribute__((constructor)) static void start(void) {
  const char *wanted = getenv("SHRINKFX_GUARD_PAGES");
  const char *other = getenv("SHRINKFX_GUARD_CALLER");
  if (other) caller = strdup(other);
  grain = number_from("SHRINKFX_GUARD_GRAIN", grain);
  quarantine = number_from("SHRINKFX_GUARD_QUARANTINE", quarantine);
  leave_environment();
  map_arena();
  pthread_atfork(hold, let_go, let_go);
  if (wanted) shrinkfx_guard(!strcmp(wanted, "after") ? AFTER
                             : !strcmp(wanted, "before") ? BEFORE : OFF);
  unsetenv("SHRINKFX_GUARD_PAGES");
}
