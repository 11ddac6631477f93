#pragma once

#include <map>
#include <string>

namespace vgpu {

// Wakes other device processes: each reads a FIFO of its own.
class Doorbell {
 public:
  explicit Doorbell(int device);  // of this process, whose parent is the host
  ~Doorbell();
  Doorbell(const Doorbell&) = delete;
  Doorbell& operator=(const Doorbell&) = delete;

  int fd() const { return own_; }
  void answer() const;  // forgets how often it rang
  // Rings another device's. False: it has no reader.
  bool ring(const std::string& path);

 private:
  std::string path_;
  int own_ = -1;
  std::map<std::string, int> others_;
};

}  // namespace vgpu
