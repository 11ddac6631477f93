#pragma once

namespace vgpu {

class Runtime;

// From now on code of the host that touches device memory, or memory that a device is using, ends
// the process with a message that names the memory and the code.
void name_host_faults(Runtime& runtime);

}  // namespace vgpu
