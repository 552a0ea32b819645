// Device memory, in ranges of reserved addresses, and registered host memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "fakecuda.h"

namespace fakecuda {
namespace {

constexpr size_t kGranularity = 2 << 20;

// A memfd; two imports of it are one allocation. It lives while a handle or a mapping does.
struct Allocation {
  int fd;
  size_t size;
  bool exportable;
  int uses;
};
struct Reservation {
  size_t size;
  char* shadow;
};
struct Mapping {
  size_t size;
  ino_t memory;
  unsigned access;
};
struct Registration {
  size_t size;
};
// Never destroyed: threads may still call while the process exits.
auto& allocations = *new std::map<ino_t, Allocation>;
auto& handles = *new std::map<CUmemGenericAllocationHandle, ino_t>;
auto& reservations = *new std::map<CUdeviceptr, Reservation>;
auto& mappings = *new std::map<CUdeviceptr, Mapping>;
auto& registrations = *new std::map<CUdeviceptr, Registration>;  // of host memory

// The entry whose range holds `address`, or end().
template <class Map>
auto find(Map& map, CUdeviceptr address) {
  auto next = map.upper_bound(address);
  if (next == map.begin()) return map.end();
  auto found = std::prev(next);
  return address - found->first < found->second.size ? found : map.end();
}

template <class Map>
bool overlaps(Map& map, CUdeviceptr address, size_t size) {
  auto next = map.lower_bound(address);
  return find(map, address) != map.end() || (next != map.end() && next->first < address + size);
}

void* pointer(CUdeviceptr p) { return reinterpret_cast<void*>(p); }

char* shadow(CUdeviceptr address) {
  auto found = find(reservations, address);
  return found->second.shadow + (address - found->first);
}

bool whole(size_t bytes) { return bytes && bytes % kGranularity == 0; }

size_t memory_used() {
  size_t sum = 0;
  for (auto& one : allocations) sum += one.second.size;
  return sum;
}

// Memory that only somebody else's descriptor still holds is not counted: nobody here knows it.
size_t memory_total() { return environment("FAKECUDA_MEMORY", uint64_t{8} << 30); }

void release(ino_t memory) {
  Allocation& a = allocations.at(memory);
  if (--a.uses) return;
  close(a.fd);
  allocations.erase(memory);
}

CUmemGenericAllocationHandle new_handle(ino_t memory) {
  static CUmemGenericAllocationHandle last = 0xfa4e0000;
  ++allocations.at(memory).uses;
  handles[++last] = memory;
  return last;
}

CUmemGenericAllocationHandle hold(int fd, size_t size, bool exportable) {
  struct stat file;
  fstat(fd, &file);
  bool added = allocations.try_emplace(file.st_ino, Allocation{fd, size, exportable, 0}).second;
  if (!added) close(fd);
  return new_handle(file.st_ino);
}

ino_t memory_of(CUmemGenericAllocationHandle handle) {
  auto found = handles.find(handle);
  if (found == handles.end()) die("0x%llx is no memory handle, or was released", handle);
  return found->second;
}

CUresult create(CUmemGenericAllocationHandle* handle, size_t size, bool exportable) {
  if (!whole(size)) return CUDA_ERROR_INVALID_VALUE;
  if (memory_used() + size > memory_total()) return CUDA_ERROR_OUT_OF_MEMORY;
  int fd = memfd_create("fakecuda", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(size))) die("no memfd of %zu bytes", size);
  *handle = hold(fd, size, exportable);
  return CUDA_SUCCESS;
}

CUresult import(CUmemGenericAllocationHandle* handle, int fd) {
  struct stat file;
  bool memfd = fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &file) == 0;
  if (!memfd || !whole(static_cast<size_t>(file.st_size))) return CUDA_ERROR_INVALID_VALUE;
  auto size = static_cast<size_t>(file.st_size);
  if (!allocations.count(file.st_ino) && memory_used() + size > memory_total()) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = hold(fcntl(fd, F_DUPFD_CLOEXEC, 0), size, true);
  return CUDA_SUCCESS;
}

// Address space nobody can touch; elsewhere if `wanted` is taken.
char* take_addresses(CUdeviceptr wanted, size_t size) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if (wanted) {
    void* p = mmap(pointer(wanted), size, PROT_NONE, kFlags | MAP_FIXED_NOREPLACE, -1, 0);
    if (p == pointer(wanted)) return static_cast<char*>(p);
    if (p != MAP_FAILED) munmap(p, size);
  }
  void* p = mmap(nullptr, size + kGranularity, PROT_NONE, kFlags, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  auto* start = static_cast<char*>(p);
  size_t before = -number(p) % kGranularity;
  if (before) munmap(start, before);
  munmap(start + before + size, kGranularity - before);
  return start + before;
}

CUresult reserve(CUdeviceptr* address, size_t size, CUdeviceptr wanted) {
  if (!whole(size) || wanted % kGranularity) return CUDA_ERROR_INVALID_VALUE;
  char* start = take_addresses(wanted, size);
  char* twin = take_addresses(0, size);
  if (!start || !twin) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = number(start);
  reservations[*address] = {size, twin};
  return CUDA_SUCCESS;
}

CUresult map(CUdeviceptr address, size_t size, CUmemGenericAllocationHandle handle) {
  ino_t memory = memory_of(handle);
  Allocation& a = allocations.at(memory);
  if (!whole(size) || address % kGranularity || size > a.size) return CUDA_ERROR_INVALID_VALUE;
  auto r = find(reservations, address);
  if (r == reservations.end() || size > r->second.size - (address - r->first)) {
    die("0x%llx..0x%llx is not reserved", address, address + size);
  }
  if (overlaps(mappings, address, size)) die("0x%llx is mapped already", address);
  int both = PROT_READ | PROT_WRITE;
  void* p = mmap(shadow(address), size, both, MAP_SHARED | MAP_FIXED, a.fd, 0);
  if (p == MAP_FAILED) die("mmap of %zu bytes failed", size);
  ++a.uses;
  mappings[address] = {size, memory, 0};
  return CUDA_SUCCESS;
}

// The mappings that lie in a range, which they must fill and not leave.
std::vector<CUdeviceptr> mappings_in(CUdeviceptr address, size_t size) {
  std::vector<CUdeviceptr> found;
  CUdeviceptr end = address + size;
  while (address < end) {
    auto m = mappings.find(address);
    if (m == mappings.end() || m->second.size > end - address) {
      die("no mapping starts at 0x%llx and ends by 0x%llx", address, end);
    }
    found.push_back(address);
    address += m->second.size;
  }
  return found;
}

void unmap(CUdeviceptr address) {
  Mapping m = mappings.at(address);
  refuse_if_pending({address, m.size});
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  mmap(shadow(address), m.size, PROT_NONE, flags, -1, 0);
  mappings.erase(address);
  release(m.memory);
}

bool resident(CUdeviceptr address, size_t size) {
  CUdeviceptr page = address & ~CUdeviceptr{4095};
  std::vector<unsigned char> pages((address + size - page + 4095) / 4096);
  return mincore(pointer(page), address + size - page, pages.data()) == 0;
}

CUresult describe(CUpointer_attribute attribute, CUdeviceptr p, void* value) {
  auto m = find(mappings, p);
  auto h = find(registrations, p);
  bool device = m != mappings.end();
  if (!device && h == registrations.end()) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return give(static_cast<CUmemorytype*>(value),
                  device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (device) return CUDA_ERROR_INVALID_VALUE;
      [[fallthrough]];
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return give(static_cast<CUdeviceptr*>(value), p);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return give(static_cast<int*>(value), 0);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return give(static_cast<CUdeviceptr*>(value), device ? m->first : h->first);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return give(static_cast<size_t*>(value), device ? m->second.size : h->second.size);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

Place find_place(CUdeviceptr address, size_t size, Access access) {
  if (find(reservations, address) != reservations.end()) {
    for (CUdeviceptr at = address; at < address + size;) {
      auto m = find(mappings, at);
      if (m == mappings.end()) die("device memory 0x%llx is not mapped", at);
      if ((m->second.access & access) != access) die("0x%llx has no access set", at);
      at = m->first + m->second.size;
    }
    return {shadow(address), true, false};
  }
  auto host = find(registrations, address);
  bool inside = host != registrations.end() && size <= host->second.size - (address - host->first);
  return {static_cast<char*>(pointer(address)), false, !inside};
}

bool can_copy(CUdeviceptr address, size_t size) {
  if (find(reservations, address) == reservations.end()) {
    auto host = find(registrations, address);
    if (host == registrations.end()) return !overlaps(registrations, address, size);
    return size <= host->second.size - (address - host->first);
  }
  CUdeviceptr at = address;
  while (at - address < size) {
    auto m = find(mappings, at);
    if (m == mappings.end()) return false;
    at = m->first + m->second.size;
  }
  return true;
}

Place find_shared(CUdeviceptr address, size_t size, Access access) {
  Place place = find_place(address, size, access);
  if (place.pageable) die("0x%llx is neither device memory nor registered", address);
  return place;
}

bool mapped_range(CUdeviceptr address, Range* range) {
  auto m = find(mappings, address);
  if (m == mappings.end()) return false;
  *range = {m->first, m->second.size};
  return true;
}

CUdeviceptr new_device_memory(const void* content, size_t size) {
  size_t rounded = (size + kGranularity) / kGranularity * kGranularity;
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address;
  if (create(&handle, rounded, false) || reserve(&address, rounded, 0)) return 0;
  map(address, rounded, handle);
  mappings[address].access = kWrite;
  if (content) memcpy(shadow(address), content, size);
  return address;
}

}  // namespace fakecuda

using namespace fakecuda;

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
  return call(__func__, kDevice, [&](Lock&) { return give(bytes, memory_total()); });
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  return call(__func__, kContext, [&](Lock&) {
    *total = memory_total();
    return give(free, *total - memory_used());
  });
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  return call(__func__, kInit, [&](Lock&) { return give(granularity, kGranularity); });
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t, CUdeviceptr wanted,
                             unsigned long long) {
  return call(__func__, kInit, [&](Lock&) { return reserve(address, size, wanted); });
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  return call(__func__, kInit, [&](Lock&) {
    auto r = reservations.find(address);
    if (r == reservations.end() || r->second.size != size) {
      die("0x%llx, %zu bytes, is no reservation", address, size);
    }
    if (overlaps(mappings, address, size)) die("0x%llx still has mappings", address);
    munmap(r->second.shadow, size);
    munmap(pointer(address), size);
    reservations.erase(r);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long) {
  return call(__func__, kInit, [&](Lock&) {
    if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (prop->location.id != 0) return CUDA_ERROR_INVALID_DEVICE;
    return create(handle, size,
                  prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return call(__func__, kInit, [&](Lock&) {
    ino_t memory = memory_of(handle);
    handles.erase(handle);
    release(memory);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  return call(__func__, kInit, [&](Lock&) {
    return offset ? CUDA_ERROR_INVALID_VALUE : map(address, size, handle);
  });
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  return call(__func__, kInit, [&](Lock&) {
    for (CUdeviceptr one : mappings_in(address, size)) unmap(one);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* desc,
                        size_t count) {
  return call(__func__, kInit, [&](Lock&) {
    if (count != 1 || desc->location.id != 0) return CUDA_ERROR_INVALID_VALUE;
    for (CUdeviceptr one : mappings_in(address, size)) mappings[one].access = desc->flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* p) {
  return call(__func__, kInit, [&](Lock&) {
    auto found = find(mappings, number(p));
    if (found == mappings.end()) return CUDA_ERROR_INVALID_VALUE;
    return give(handle, new_handle(found->second.memory));
  });
}

CUresult cuMemExportToShareableHandle(void* exported, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long) {
  return call(__func__, kInit, [&](Lock&) {
    Allocation& a = allocations.at(memory_of(handle));
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !a.exportable) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *static_cast<int*>(exported) = fcntl(a.fd, F_DUPFD_CLOEXEC, 0);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* exported,
                                        CUmemAllocationHandleType type) {
  return call(__func__, kInit, [&](Lock&) {
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
    return import(handle, static_cast<int>(reinterpret_cast<intptr_t>(exported)));
  });
}

CUresult cuMemHostRegister(void* p, size_t size, unsigned) {
  return call(__func__, kContext, [&](Lock&) {
    if (!p || !size || !resident(number(p), size)) return CUDA_ERROR_INVALID_VALUE;
    if (overlaps(registrations, number(p), size)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    registrations[number(p)] = {size};
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostUnregister(void* p) {
  return call(__func__, kContext, [&](Lock&) {
    auto found = registrations.find(number(p));
    if (found == registrations.end()) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    refuse_if_pending({number(p), found->second.size});
    registrations.erase(found);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* device, void* p, unsigned) {
  return call(__func__, kContext, [&](Lock&) {
    if (find(registrations, number(p)) == registrations.end()) return CUDA_ERROR_INVALID_VALUE;
    return give(device, number(p));
  });
}

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr p) {
  return call(__func__, kContext, [&](Lock&) { return describe(attribute, p, value); });
}
