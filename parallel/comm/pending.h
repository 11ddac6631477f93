#pragma once

namespace weft {

// An operation that was started. Wait before the memory it uses goes away; without, it is given up.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual void wait() = 0;
};

class Done final : public Pending {  // nothing is left to wait for
 public:
  void wait() override {}
};

}  // namespace weft
