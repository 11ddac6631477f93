// Any text as a checkpoint's manifest: refused with a ConfigError or read, nothing else. Also with
// a hash that fits, so that the checks behind it are reached.
//
// sources: core/files/manifest.cc core/files/hash.cc core/base/error.cc core/base/shape.cc
// libraries: -lfmt -lxxhash
// seeds: tests/fuzz/seeds/manifest
#include <nlohmann/json.hpp>

#include "core/files/hash.h"
#include "core/files/manifest.h"

namespace {

void read(const std::string& text) {
  try {
    const weft::Manifest m = weft::manifest_from_json(text, "fuzzed");
    if (weft::to_json(weft::manifest_from_json(weft::to_json(m), "again")) != weft::to_json(m)) {
      std::abort();
    }
  } catch (const weft::ConfigError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using nlohmann::json;
  const std::string text(reinterpret_cast<const char*>(data), size);
  read(text);
  json body = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (body.is_object() && body.contains("manifest")) {
    const json inner = body["manifest"];
    body = inner;
  }
  if (!body.is_discarded()) {
    read(json{{"hash", weft::hash_of(body.dump())}, {"manifest", body}}.dump());
  }
  return 0;
}
