// `weft checkpoint` as a user starts it, and checkpoints read by other programs.
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/data/indexed_dataset.h"
#include "launcher/checkpoint/checkpoint_lookup.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "tests/support/program.h"

namespace weft::test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class CheckpointCommand : public testing::Test {
 protected:
  // Two checkpoints of a tiny run on two ranks, so that tensors are split.
  CheckpointCommand() {
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
    IndexedDatasetWriter writer(folder / "corpus", TokenType::kU16);
    std::vector<int32_t> tokens(4000);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 89);
    writer.add_document(tokens);
    writer.finish();
    const Outcome o =
        run_ranked(2, {"train", in_project("configs/tiny.toml"),
                       "data.train=[\"" + (folder / "corpus") + "\"]", "run.dir=" + run,
                       "train.steps=2", "train.sequence=16", "train.global_batch=2",
                       "train.micro_batch=1", "run.checkpoint_every=1"});
    if (o.code != 0) throw std::runtime_error(o.err);
  }

  const ScratchFolder folder;
  const std::string run = folder / "run";
  const std::string newest = run + "/checkpoints/step-000000002";
};

std::vector<float> read_whole(const FoundCheckpoint& from, const std::string& tensor) {
  for (const Manifest::Piece& p : from.manifest.pieces) {
    if (p.tensor != tensor) continue;
    std::vector<float> out(static_cast<size_t>(p.global.elements()));
    Slice whole{p.global, p.global};
    for (int d = 0; d < whole.offset.dims(); ++d) whole.offset[d] = 0;
    load_tensors(from,
                 {{tensor, p.global, {whole}, Tensor::borrow(out.data(), p.global, DType::kF32)}});
    return out;
  }
  ADD_FAILURE() << "no " << tensor;
  return {};
}

TEST_F(CheckpointCommand, InspectAndVerifyTellPeopleAndPrograms) {
  const Outcome inspect = run_weft({"checkpoint", "inspect", run});
  ASSERT_EQ(inspect.code, 0) << inspect.err;
  EXPECT_NE(inspect.out.find(", 4 sequences, 2 updates"), std::string::npos) << inspect.out;
  const json told = json::parse(run_weft({"checkpoint", "inspect", run, "--json"}).out);
  EXPECT_EQ(told["step"], 2);
  EXPECT_EQ(told["files"].size(), 2u);
  EXPECT_EQ(told["layout"]["ranks"], 2);
  EXPECT_GT(told["tensors"].size(), 10u);

  const Outcome whole = run_weft({"checkpoint", "verify", run});
  EXPECT_EQ(whole.code, 0) << whole.out << whole.err;
  EXPECT_NE(whole.out.find("step-000000001: whole, 2 files"), std::string::npos) << whole.out;
  EXPECT_NE(whole.out.find("step-000000002: whole, 2 files"), std::string::npos) << whole.out;

  std::string index = get_file(newest + "/index.h5");
  index[index.size() / 2] ^= 1;
  put_file(newest + "/index.h5", index);
  const Outcome damaged = run_weft({"checkpoint", "verify", run, "--json"});
  EXPECT_EQ(damaged.code, 3);
  const json report = json::parse(damaged.out);
  EXPECT_EQ(report["checkpoints"][0]["whole"], true);
  EXPECT_EQ(report["checkpoints"][1]["whole"], false);
  EXPECT_NE(report["checkpoints"][1]["damage"].get<std::string>().find("index.h5"),
            std::string::npos);
  // The index serves other programs: Weft needs only the slices.
  EXPECT_EQ(open_checkpoint(run).manifest.step, 2);

  const Outcome none = run_weft({"checkpoint", "verify", folder / "nowhere"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("holds no checkpoint"), std::string::npos) << none.err;
}

TEST_F(CheckpointCommand, ReshardKeepsEveryTensorInAnyNumberOfFiles) {
  const FoundCheckpoint before = verify_completely(newest);
  struct Case {
    std::vector<std::string> options;
    size_t files;
  };
  int number = 0;
  for (const Case& c : {Case{{"--single"}, 1}, Case{{"--files", "5"}, 5}, Case{{}, 1}}) {
    const std::string out = folder / fmt::format("out{}", number++);
    std::vector<std::string> arguments = {"checkpoint", "reshard", run, out};
    arguments.insert(arguments.end(), c.options.begin(), c.options.end());
    const Outcome o = run_weft(arguments);
    ASSERT_EQ(o.code, 0) << o.err;
    const FoundCheckpoint after = verify_completely(out + "/checkpoints/step-000000002");
    EXPECT_EQ(after.manifest.files.size(), c.files);
    EXPECT_EQ(after.manifest.samples, before.manifest.samples);
    std::set<std::string> tensors;
    for (const Manifest::Piece& p : before.manifest.pieces) tensors.insert(p.tensor);
    for (const std::string& t : tensors)
      EXPECT_TRUE(read_whole(before, t) == read_whole(after, t)) << t;
    if (c.files == 1) {
      EXPECT_EQ(after.manifest.pieces.size(), tensors.size()) << "every tensor whole";
    }
    EXPECT_EQ(run_weft(arguments).code, 2) << "not over what is there";
  }
  ASSERT_EQ(run_weft({"checkpoint", "reshard", run, folder / "w", "--weights-only"}).code, 0);
  for (const Manifest::Piece& p :
       read_checkpoint(folder / "w/checkpoints/step-000000002").manifest.pieces) {
    EXPECT_TRUE(p.tensor.starts_with("parameters/")) << p.tensor;
  }
}

// A manifest with correct hashes of a file that is a link.
TEST_F(CheckpointCommand, AFileThatIsALinkIsRefused) {
  fs::rename(newest + "/rank-00001.h5", folder / "elsewhere.h5");
  fs::create_symlink(folder / "elsewhere.h5", newest + "/rank-00001.h5");
  const std::string said = message_of<ConfigError>([&] { verify_checkpoint(newest); });
  EXPECT_NE(said.find("leads elsewhere"), std::string::npos) << said;
}

// Reading only weights checks the hashes on every rank and falls back to the previous checkpoint.
TEST_F(CheckpointCommand, ThatIsDamagedGivesWayToTheOneBefore) {
  const std::string file = newest + "/rank-00001.h5";
  fs::resize_file(file, fs::file_size(file) - 1);
  const std::string before = run + "/checkpoints/step-000000001", told = file + ": has ";
  const std::vector<std::string> generate = {"generate", "--prompt",  "a",           "--tokens",
                                             "2",        "--endless", "--checkpoint"};
  const auto with = [](std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  for (const int ranks : {1, 2}) {
    const Outcome o =
        ranks == 1 ? run_weft(with(generate, {run})) : run_ranked(2, with(generate, {run}));
    EXPECT_EQ(o.code, 0) << o.err;
    const size_t at = o.err.find(told);
    EXPECT_NE(at, std::string::npos) << o.err;
    EXPECT_EQ(o.err.find(told, at + 1), std::string::npos) << "once, by one rank: " << o.err;
  }
  const Outcome named = run_weft(with(generate, {newest}));
  EXPECT_EQ(named.code, 2) << "no other one was asked for";
  EXPECT_NE(named.err.find(told), std::string::npos) << named.err;
  const Outcome init = run_ranked(
      2, {"train", in_project("configs/tiny.toml"), "data.train=[\"" + (folder / "corpus") + "\"]",
          "run.dir=" + (folder / "next"), "run.init=" + run, "train.steps=1", "train.sequence=16",
          "train.global_batch=2", "train.micro_batch=1"});
  EXPECT_EQ(init.code, 0) << init.err;
  EXPECT_NE((init.out + init.err).find("starts from the weights of " + before), std::string::npos)
      << init.out << init.err;
  EXPECT_NE(init.err.find(told), std::string::npos) << init.err;
}

TEST_F(CheckpointCommand, TheIndexShowsWholeTensorsToH5py) {
  const std::string command = python_with("h5py");
  if (command.empty())
    GTEST_SKIP() << "no python3 with h5py here (WEFT_PYTHON names another python)";
  const std::string script = R"(
import h5py, sys
f = h5py.File(sys.argv[1] + "/index.h5")
for name in ("parameters/embed.weight", "adam/v/embed.weight"):
    f[name][...].astype("<f4").tofile(sys.argv[2] + "/" + name.replace("/", "_"))
)";
  put_file(folder / "read.py", script);
  const std::string line =
      fmt::format("cd / && {} {} {} {}", command, folder / "read.py", newest, folder / "");
  ASSERT_EQ(std::system(line.c_str()), 0);
  const FoundCheckpoint found = verify_completely(newest);
  for (const char* name : {"parameters/embed.weight", "adam/v/embed.weight"}) {
    const std::vector<float> want = read_whole(found, name);
    std::string file = name;
    std::replace(file.begin(), file.end(), '/', '_');
    const std::string bytes = get_file(folder / file);
    ASSERT_EQ(bytes.size(), want.size() * 4) << name;
    EXPECT_EQ(std::memcmp(bytes.data(), want.data(), bytes.size()), 0) << name;
  }
}

}  // namespace
}  // namespace weft::test
