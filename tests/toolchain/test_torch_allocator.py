"""The methods of an allocator that passes every call on, from headers in the style of torch's."""

from __future__ import annotations

from pathlib import Path

from streamsafe.toolchain import torch_allocator

CUDA = """\
class C10_CUDA_API CUDAAllocator : public DeviceAllocator {
 public:
  virtual void* raw_alloc(size_t nbytes) = 0;
  virtual void recordStream(const DataPtr& ptr, CUDAStream stream) = 0;  // ours
  virtual void attach(OutOfMemoryObserver observer, bool now = false) = 0;
  virtual std::vector<StreamSegmentSize> expandable(c10::DeviceIndex device) const {
    return {};
  }
  virtual ~CUDAAllocator() = default;
  virtual void beginAllocateToPool(
      c10::DeviceIndex device,
      MempoolId_t mempool_id,
      std::function<bool(cudaStream_t)> filter) = 0;
};
"""
DEVICE = """\
struct C10_API DeviceAllocator : public c10::Allocator {
  virtual void emptyCache(MempoolId_t mempool_id = {0, 0}) = 0;
  virtual void* raw_alloc(size_t bytes) = 0;
};
"""
EXPECTED = """\
  void* raw_alloc(size_t a0)  override { return inner->raw_alloc(std::move(a0)); }
  void attach(OutOfMemoryObserver a0, bool a1)  override { return inner->attach(std::move(a0), std::move(a1)); }
  std::vector<StreamSegmentSize> expandable(c10::DeviceIndex a0) const override \
{ return inner->expandable(std::move(a0)); }
  void beginAllocateToPool(c10::DeviceIndex a0, MempoolId_t a1, std::function<bool(cudaStream_t)> a2)  override \
{ return inner->beginAllocateToPool(std::move(a0), std::move(a1), std::move(a2)); }
  void emptyCache(MempoolId_t a0)  override { return inner->emptyCache(std::move(a0)); }
  bool initialized(const char* a0, c10::Storage& a1) const override { return inner->initialized(a0, a1); }
"""


def test_methods_are_those_of_all_classes_and_each_stands_once(tmp_path: Path) -> None:
    base = (
        "struct Allocator {\n  virtual bool initialized(const char* name, c10::Storage& storage) const;\n};\n"
    )
    for name, text in (
        ("cuda/CUDACachingAllocator.h", CUDA),
        ("core/CachingDeviceAllocator.h", DEVICE),
        ("core/Allocator.h", base),
    ):
        path = tmp_path / "c10" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert torch_allocator.text(tmp_path) == EXPECTED


def test_a_header_of_an_older_release_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "c10" / "core" / "Allocator.h"
    path.parent.mkdir(parents=True)
    path.write_text("struct Other {};\n", encoding="utf-8")
    assert torch_allocator.text(tmp_path) == "\n"
