/* What Python and PyTorch call, whatever device the zones are on. */
#pragma once
#include "zones.h"

#include <cstring>
#include <sys/types.h>

extern "C" {

/* As torch.cuda.memory.CUDAPluggableAllocator wants it. */
void *shrinkfx_zones_malloc(ssize_t size, int device, void *) {
  return shrinkfx::zones().allocate((size_t)size, device);
}

void shrinkfx_zones_free(void *pointer, ssize_t, int, void *) {
  shrinkfx::zones().release(pointer);
}

/* Args: side, of tensors that are made from now on; loud, to end the process with a
 * line on stderr where a zone is spoiled. */
void shrinkfx_zones_set(int side, int loud) {
  shrinkfx::zones().set((shrinkfx::Side)side, loud);
}

void shrinkfx_zones_look(void) { shrinkfx::zones().look(""); }

/* Look at them with each launch of a kernel, too. */
void shrinkfx_zones_watch(int on) { shrinkfx::watching() = on; }

/* Copy what was found, a line each, and forget it. */
void shrinkfx_zones_findings(char *text, size_t length) {
  std::string all = shrinkfx::zones().take_findings();
  strncpy(text, all.c_str(), length - 1);
  text[length - 1] = 0;
}

int shrinkfx_zones_have_pages(void) { return shrinkfx::zones().have_pages(); }
}
