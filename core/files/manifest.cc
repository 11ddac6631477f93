#include "core/files/manifest.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/json_reason.h"
#include "core/files/hash.h"

namespace weft {
namespace {

using Json = nlohmann::json;
constexpr int64_t kVersion = 3;
constexpr int kDepth = 8;            // of nesting; ours has five
constexpr size_t kPieces = 1 << 15;  // of one tensor
constexpr int64_t kMaxBytes = int64_t{1} << 60;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Damage("{}: not a whole manifest: {}", path, why);
}

[[noreturn]] void refuse_version(const std::string& path, const Json& version) {
  const bool older = version.is_number_integer() && version < kVersion;
  throw OtherVersion(
      "{}: the checkpoint has format {}, this program reads format {}: a{} weft wrote it. Go on "
      "with that one, or start anew: run.resume=never keeps these checkpoints beside the new ones",
      path, version.dump(), kVersion, older ? "n older" : " newer");
}

// The values of a JSON object, each checked to be what it should be.
struct Reader {
  const std::string& path;

  int64_t number(const Json& from, const char* key) const { return number(from.at(key), key, 0); }
  int64_t number(const Json& value, const std::string& what, int64_t least) const {
    const bool fits = value.is_number_integer() &&
                      !(value.is_number_unsigned() &&
                        value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()});
    if (!fits || value.get<int64_t>() < least) refuse(path, what + " is not a number that fits");
    return value.get<int64_t>();
  }

  Shape shape(const Json& from, const char* key) const {
    const Json& list = from.at(key);
    if (!list.is_array() || list.size() > Shape::kMaxDims) refuse(path, "a shape of too many dims");
    Shape out;
    for (const Json& extent : list) out.append(number(extent, key, 0));
    return out;
  }

  // `count` of them, one after the other.
  std::string hashes(const Json& from, const char* key, int64_t count) const {
    const std::string text = from.at(key);
    const bool hex = text.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (text.size() / kHashDigits != static_cast<size_t>(count) || text.size() % kHashDigits != 0 ||
        !hex)
      refuse(path, "a hash that is none");
    return text;
  }

  // A file inside the folder: nothing that leads elsewhere, hides or ends early.
  std::string file_name(const Json& from, const char* key) const {
    const std::string name = from.at(key);
    const bool plain = name.find_first_not_of(
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
                       std::string::npos;
    if (name.empty() || name[0] == '.' || !plain || name.size() > 255)
      refuse(path, "file name '" + name + "'");
    return name;
  }

  std::string tensor_name(const Json& from, const char* key) const {
    const std::string name = from.at(key);
    const auto odd = [](char c) { return c <= ' ' || c > '~'; };
    if (name.empty() || std::any_of(name.begin(), name.end(), odd))
      refuse(path, "tensor name '" + name + "'");
    return name;
  }

  Manifest::File file(const Json& from) const {
    const int64_t bytes = number(from, "bytes");
    if (bytes > kMaxBytes) refuse(path, "a file of an impossible size");
    Manifest::File file{file_name(from, "name"), bytes,
                        hashes(from, "blocks", hashed_blocks(bytes))};
    if (hashes(from, "hash", 1) != hash_of(file)) refuse(path, "hashes that do not fit");
    return file;
  }

  Manifest::Piece piece(const Json& from) const {
    if (from.at("type") != "f32") refuse(path, "a slice of a type that is not f32");
    return {tensor_name(from, "tensor"),
            file_name(from, "file"),
            tensor_name(from, "dataset"),
            shape(from, "global"),
            {shape(from, "offset"), shape(from, "extent")},
            number(from, "position"),
            hashes(from, "hash", 1)};
  }
};

Json to_list(const Shape& shape) { return std::vector<int64_t>(shape.begin(), shape.end()); }

// Elements, or nothing when their bytes could not be counted.
bool countable(const Shape& shape) {
  int64_t product = 4;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(product, extent, &product) || product > kMaxBytes) return false;
  }
  return true;
}

bool inside(const Slice& slice, const Shape& global) {
  if (slice.offset.dims() != global.dims() || slice.extent.dims() != global.dims()) return false;
  for (int i = 0; i < global.dims(); ++i) {
    if (slice.offset[i] > global[i] || slice.extent[i] > global[i] - slice.offset[i]) return false;
  }
  return true;
}

// Corners of boxes, each with the number of boxes that begin there less those that end there, so to
// speak: a corner counts +1 or -1 by the parity of the sides on which it lies at the upper end.
class Corners {
 public:
  void add(const Slice& box, int sign) {
    const int dims = box.offset.dims();
    for (unsigned upper = 0; upper < 1u << dims; ++upper) {
      Corner corner{};
      for (int d = 0; d < dims; ++d) {
        const bool end = (upper >> d & 1u) != 0;
        corner[static_cast<size_t>(d)] = box.offset[d] + (end ? box.extent[d] : 0);
      }
      all_.emplace_back(corner, std::popcount(upper) % 2 == 0 ? sign : -sign);
    }
  }

  bool cancel() {
    std::sort(all_.begin(), all_.end());
    for (size_t i = 0; i < all_.size();) {
      int sum = 0;
      const Corner& here = all_[i].first;
      for (; i < all_.size() && all_[i].first == here; ++i) sum += all_[i].second;
      if (sum != 0) return false;
    }
    return true;
  }

 private:
  using Corner = std::array<int64_t, Shape::kMaxDims>;
  std::vector<std::pair<Corner, int>> all_;
};

// Boxes inside, of one global shape per tensor, covering it once. How often boxes cover a point is
// a function that jumps at corners alone, by what they count: it is one everywhere inside exactly
// when the corners of all boxes are those of the tensor.
void check_cover(const Manifest& m, const std::string& path) {
  std::map<std::string, std::vector<const Manifest::Piece*>> by_tensor;
  for (const Manifest::Piece& piece : m.pieces) by_tensor[piece.tensor].push_back(&piece);
  for (const auto& [name, pieces] : by_tensor) {
    const Shape& global = pieces[0]->global;
    if (pieces.size() > kPieces) refuse(path, name + " has too many slices");
    if (!countable(global)) refuse(path, name + " is too large");
    int64_t covered = 0;
    Corners corners;
    for (const Manifest::Piece* piece : pieces) {
      if (!(piece->global == global)) refuse(path, name + " has two shapes");
      if (!inside(piece->slice, global)) refuse(path, name + " has a slice outside of it");
      covered += piece->slice.extent.elements();
      if (covered > global.elements()) refuse(path, name + " has overlapping slices");
      corners.add(piece->slice, 1);
    }
    if (covered < global.elements()) refuse(path, name + " is not complete");
    Shape origin;
    for (int d = 0; d < global.dims(); ++d) origin.append(0);
    corners.add({origin, global}, -1);
    if (!corners.cancel()) refuse(path, name + " has overlapping slices");
  }
}

// Every slice inside its file, and all of a file together no more than the file.
void check_places(const Manifest& m, const std::string& path) {
  struct Room {
    int64_t bytes, left;
  };
  std::map<std::string, Room> files;
  for (const Manifest::File& file : m.files) {
    if (!files.emplace(file.name, Room{file.bytes, file.bytes}).second)
      refuse(path, file.name + " is listed twice");
  }
  std::set<std::string> others = {m.index.name};
  for (const Manifest::File& file : m.others) {
    if (files.contains(file.name) || !others.insert(file.name).second)
      refuse(path, file.name + " is listed twice");
  }
  for (const Manifest::Piece& piece : m.pieces) {
    const auto found = files.find(piece.file);
    if (found == files.end()) refuse(path, "a slice in a file that is not listed");
    Room& room = found->second;
    const int64_t bytes = bytes_of(piece);
    if (bytes > room.bytes || piece.position > room.bytes - bytes)
      refuse(path, "a slice of " + piece.tensor + " outside of " + piece.file);
    room.left -= bytes;
    if (room.left < 0) refuse(path, piece.file + " holds more than it has bytes");
  }
}

Manifest from_body(const Json& body, const std::string& path) {
  const Reader read{path};
  Manifest m;
  if (body.contains("run")) m.run = body.at("run");
  m.step = read.number(body, "step");
  m.samples = read.number(body, "samples");
  m.updates = read.number(body, "updates");
  m.skipped = read.number(body, "skipped");
  m.seed = read.number(body.at("seed"), "seed", std::numeric_limits<int64_t>::min());
  m.config = body.at("config");
  m.data = body.at("data");
  for (const auto& [name, size] : body.at("layout").items()) {
    m.layout[name] = read.number(size, "layout", 0);
  }
  for (const Json& f : body.at("files")) m.files.push_back(read.file(f));
  for (const Json& p : body.at("slices")) m.pieces.push_back(read.piece(p));
  for (const Json& f : body.at("others")) m.others.push_back(read.file(f));
  if (body.contains("index")) m.index = read.file(body.at("index"));
  return m;
}

// Text that nests deeper than a manifest does would exhaust the stack where it is walked.
Json parse(const std::string& text, const std::string& path) {
  return Json::parse(text, [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kDepth) refuse(path, "nested too deeply");
    return true;
  });
}

Json file_entry(const Manifest::File& f) {
  return {{"name", f.name}, {"bytes", f.bytes}, {"hash", hash_of(f)}, {"blocks", f.blocks}};
}

}  // namespace

int64_t bytes_of(const Manifest::Piece& piece) { return 4 * piece.slice.extent.elements(); }

std::string hash_of(const Manifest::File& file) { return hash_of(file.blocks); }

const Manifest::File* other_file(const Manifest& manifest, const std::string& name) {
  for (const Manifest::File& file : manifest.others) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

std::string to_json(const Manifest& m) {
  Json files = Json::array(), slices = Json::array(), others = Json::array();
  for (const auto& f : m.files) files.push_back(file_entry(f));
  for (const auto& f : m.others) others.push_back(file_entry(f));
  for (const auto& p : m.pieces) {
    slices.push_back({{"tensor", p.tensor},
                      {"type", "f32"},
                      {"file", p.file},
                      {"dataset", p.dataset},
                      {"global", to_list(p.global)},
                      {"offset", to_list(p.slice.offset)},
                      {"extent", to_list(p.slice.extent)},
                      {"position", p.position},
                      {"hash", p.hash}});
  }
  Json body = {{"version", kVersion},  {"step", m.step},       {"samples", m.samples},
               {"updates", m.updates}, {"skipped", m.skipped}, {"seed", m.seed},
               {"config", m.config},   {"data", m.data},       {"layout", m.layout},
               {"files", files},       {"slices", slices},     {"others", others}};
  if (!m.run.empty()) body["run"] = m.run;
  if (!m.index.name.empty()) body["index"] = file_entry(m.index);
  return Json{{"hash", hash_of(body.dump())}, {"manifest", body}}.dump(1) + "\n";
}

Manifest manifest_from_json(const std::string& text, const std::string& path) {
  try {
    const Json whole = parse(text, path);
    const Json& body = whole.at("manifest");
    if (hash_of(body.dump()) != whole.at("hash").get<std::string>())
      refuse(path, "its hash does not fit");
    const Json& version = body.at("version");
    if (version != kVersion) refuse_version(path, version);
    Manifest m = from_body(body, path);
    check_cover(m, path);
    check_places(m, path);
    return m;
  } catch (const Json::exception& error) {
    refuse(path, json_reason(error.what()));
  }
}

}  // namespace weft
