// No exception leaves a stub: what would be one ends the program here (out of memory, mostly).
//
// Without these functions libstdc++'s own would be linked in, which allocate a pool of memory when
// the library is loaded, in every program.
#include <cstddef>
#include <cstdlib>

extern "C" {
void* __cxa_allocate_exception(size_t) noexcept { abort(); }
void __cxa_free_exception(void*) noexcept { abort(); }
void* __cxa_allocate_dependent_exception() noexcept { abort(); }
void __cxa_free_dependent_exception(void*) noexcept { abort(); }
}
