// A CUDA device guard that does nothing, for a torch that was built without CUDA.

#include <c10/core/impl/DeviceGuardImplInterface.h>

using c10::DeviceType;

static c10::impl::DeviceGuardImplRegistrar registered(
    DeviceType::CUDA, new c10::impl::NoOpDeviceGuardImpl<DeviceType::CUDA>());
