#pragma once

#include <string>

namespace weft {

// A library of weft in the program's folder, loaded on demand. Code that links to GPU libraries is
// in plugins, so that the program itself starts on machines without them.
class Plugin {
 public:
  explicit Plugin(const std::string& name);  // "nccl": libweft_nccl.so

  // Why it is missing: "not built in", or the loader's message about a library that it needs.
  const std::string& why_not() const { return why_not_; }
  bool loaded() const { return handle_ != nullptr; }

  // A function that the library exports as extern "C"; throws if there is none.
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  std::string name_, why_not_;
  void* handle_ = nullptr;  // stays loaded: objects of its classes may live as long as the program
};

}  // namespace weft
