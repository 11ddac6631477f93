#include "core/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/hash.h"

namespace weft {
namespace {

using Json = nlohmann::json;
constexpr int64_t kVersion = 1;

Json to_list(const Shape& shape) { return std::vector<int64_t>(shape.begin(), shape.end()); }

Shape shape_from(const Json& list) {
  Shape shape;
  for (const Json& extent : list) shape.append(extent.get<int64_t>());
  return shape;
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw ConfigError("{}: not a whole manifest: {}", path, why);
}

bool plain_name(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name != "." && name != "..";
}

bool inside(const Slice& slice, const Shape& global) {
  if (slice.offset.dims() != global.dims() || slice.extent.dims() != global.dims()) return false;
  for (int i = 0; i < global.dims(); ++i) {
    if (slice.offset[i] > global[i] || slice.extent[i] > global[i] - slice.offset[i]) return false;
  }
  return true;
}

bool overlap(const Slice& a, const Slice& b) {
  for (int i = 0; i < a.offset.dims(); ++i) {
    if (a.offset[i] + a.extent[i] <= b.offset[i] || b.offset[i] + b.extent[i] <= a.offset[i]) return false;
  }
  return a.extent.elements() > 0 && b.extent.elements() > 0;
}

// Boxes inside, of one global shape per tensor, covering it once: no overlap and as many elements.
void check_cover(const Manifest& m, const std::string& path) {
  std::map<std::string, std::vector<const Manifest::Piece*>> by_tensor;
  for (const Manifest::Piece& piece : m.pieces) by_tensor[piece.tensor].push_back(&piece);
  for (const auto& [name, pieces] : by_tensor) {
    int64_t covered = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (!(pieces[i]->global == pieces[0]->global)) refuse(path, name + " has two shapes");
      if (!inside(pieces[i]->slice, pieces[i]->global)) refuse(path, name + " has a slice outside of it");
      covered += pieces[i]->slice.extent.elements();
      for (size_t j = 0; j < i; ++j) {
        if (overlap(pieces[i]->slice, pieces[j]->slice)) refuse(path, name + " has overlapping slices");
      }
    }
    if (covered != pieces[0]->global.elements()) refuse(path, name + " is not complete");
  }
}

Manifest from_body(const Json& body, const std::string& path) {
  Manifest m;
  m.step = body.at("step");
  m.samples = body.at("samples");
  m.updates = body.at("updates");
  m.seed = body.at("seed");
  m.config = body.at("config");
  m.data = body.at("data");
  m.layout = body.at("layout");
  for (const Json& f : body.at("files")) {
    m.files.push_back({f.at("name"), f.at("bytes"), f.at("hash")});
    if (!plain_name(m.files.back().name)) refuse(path, "file name " + m.files.back().name);
  }
  for (const Json& p : body.at("slices")) {
    m.pieces.push_back({p.at("tensor"), p.at("file"), p.at("dataset"), shape_from(p.at("global")),
                        {shape_from(p.at("offset")), shape_from(p.at("extent"))}});
    const bool known = std::any_of(m.files.begin(), m.files.end(),
                                   [&](const auto& f) { return f.name == m.pieces.back().file; });
    if (!known) refuse(path, "a slice in a file that is not listed");
  }
  return m;
}

}  // namespace

std::string to_json(const Manifest& m) {
  Json files = Json::array(), slices = Json::array();
  for (const auto& f : m.files) files.push_back({{"name", f.name}, {"bytes", f.bytes}, {"hash", f.hash}});
  for (const auto& p : m.pieces) {
    slices.push_back({{"tensor", p.tensor}, {"type", "f32"}, {"file", p.file}, {"dataset", p.dataset},
                      {"global", to_list(p.global)}, {"offset", to_list(p.slice.offset)},
                      {"extent", to_list(p.slice.extent)}});
  }
  const Json body = {{"version", kVersion}, {"step", m.step},     {"samples", m.samples},
                     {"updates", m.updates}, {"seed", m.seed},     {"config", m.config},
                     {"data", m.data},       {"layout", m.layout}, {"files", files},
                     {"slices", slices}};
  return Json{{"hash", hash_of(body.dump())}, {"manifest", body}}.dump(1) + "\n";
}

Manifest manifest_from_json(const std::string& text, const std::string& path) {
  try {
    const Json whole = Json::parse(text);
    const Json& body = whole.at("manifest");
    if (hash_of(body.dump()) != whole.at("hash").get<std::string>()) refuse(path, "its hash does not fit");
    if (body.at("version").get<int64_t>() != kVersion) refuse(path, "another version");
    Manifest m = from_body(body, path);
    check_cover(m, path);
    return m;
  } catch (const Json::exception& error) {
    refuse(path, error.what());
  }
}

}  // namespace weft
