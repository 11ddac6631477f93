// Import and export of Hugging Face folders. tests/golden/hf has small random models and their
// logits, made by the transformers package (tests/e2e/hf_models.py); tests/golden/hf_published has
// configs of published models with their parameter counts.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/host_access.h"
#include "launcher/checkpoint/loaded_model.h"
#include "launcher/hf/convert.h"
#include "launcher/hf/family.h"
#include "parallel/parameter_values.h"
#include "tests/support/near.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

namespace fs = std::filesystem;

std::string stored(const std::string& family) { return in_project("tests/golden/hf/" + family); }

// Logits [B, T, vocab] of a checkpoint for the stored tokens.
Tensor logits_of(Runtime& runtime, const std::string& checkpoint, const Tensor& tokens) {
  const LoadedModel model(runtime, open_checkpoint(checkpoint), DType::kF32);
  const int64_t sequences = tokens.shape()[0], length = tokens.shape()[1];
  const int64_t vocab = model.config().model.vocab;
  const Tensor all = runtime.exec().empty({sequences, length, vocab});
  for (int64_t b = 0; b < sequences; ++b) {
    ModelStage::States states;
    std::vector<int64_t> rows;
    for (int64_t i = 0; i < length; ++i) rows.push_back(i);
    const Tensor ids = runtime.exec().empty({length}, DType::kI32);
    std::copy_n(host<int32_t>(tokens) + b * length, length, host<int32_t>(ids));
    const Sequence sequence = make_sequence({0, static_cast<int32_t>(length)});
    const Tensor logits = model.decode(runtime.exec(), ids, sequence, rows, states);
    std::copy_n(host<float>(logits), logits.elements(), host<float>(all) + b * length * vocab);
  }
  return all;
}

void expect_same_tensors(const std::string& a, const std::string& b) {
  const HfFolder before(a), after(b);
  for (const auto& [name, found] : after.tensors()) {
    const auto old = before.tensors().find(name);
    if (old == before.tensors().end()) continue;  // counted below
    const FileTensor &x = *old->second.tensor, &y = *found.tensor;
    EXPECT_EQ(x.type_name, y.type_name) << name;
    ASSERT_EQ(x.shape, y.shape) << name;
    EXPECT_TRUE(SameBits(old->second.file->view(x), found.file->view(y))) << name;
  }
}

class StoredFamily : public testing::TestWithParam<std::string> {
 protected:
  void import() {
    HfFolder from(stored(GetParam()));
    import_model(runtime, from, folder / "ckpt");
  }
  Runtime runtime{1};
  ScratchFolder folder;
};

TEST_P(StoredFamily, GivesTheLogitsOfTransformers) {
  import();
  const SafetensorsFile expected(stored(GetParam()) + "/expected.st");
  const Tensor tokens = expected.read(runtime.pool(), "tokens", DType::kI32);
  const Tensor logits = logits_of(runtime, folder / "ckpt", tokens);
  // Sums of some hundred f32 products in another order, through three layers.
  EXPECT_TRUE(Near(logits, expected.view("logits"), 2e-5));
}

TEST_P(StoredFamily, IsExportedWithTheSameBits) {
  import();
  const ExportReport report = export_model(runtime, folder / "ckpt", folder / "out", {});
  EXPECT_EQ(report.family, HfFolder(stored(GetParam())).config().text("model_type", ""));
  expect_same_tensors(stored(GetParam()), folder / "out");
  EXPECT_EQ(HfConfig::load(folder / "out/config.json").json(),
            HfConfig::load(stored(GetParam()) + "/config.json").json());
  EXPECT_TRUE(fs::exists(folder / "out/generation_config.json"));
  EXPECT_FALSE(fs::exists(folder / "out/expected.st"));
  HfFolder again(folder / "out");
  EXPECT_NO_THROW(plan_import(again));
}

// Without its accompanying files, a model is recognized by its function.
TEST_P(StoredFamily, IsRecognizedWithoutItsConfig) {
  import();
  fs::remove_all(folder / "ckpt/hf");
  const ExportReport report =
      export_model(runtime, folder / "ckpt", folder / "out", {.dtype = FileDtype::kF32});
  HfFolder again(folder / "out");
  const auto plan = plan_import(again);
  const Config before = config_from_text(open_checkpoint(folder / "ckpt").manifest.config, "ckpt");
  EXPECT_TRUE(same_model(plan->config.model, before.model)) << report.family;
  EXPECT_NE(report.family, "weft");
}

std::vector<std::string> names_in(const std::string& place) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(in_project(place))) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, StoredFamily, testing::ValuesIn(names_in("tests/golden/hf")),
                         [](const auto& info) { return info.param; });

class PublishedModel : public testing::TestWithParam<std::string> {};

TEST_P(PublishedModel, HasItsParameters) {
  const ScratchFolder folder;
  const HfConfig known =
      HfConfig::load(in_project("tests/golden/hf_published/" + GetParam() + ".json"));
  put_file(folder / "config.json", known.json()["config"].dump());
  HfFolder from(folder.path().string());
  EXPECT_EQ(plan_import(from)->parameters, known.integer("parameters")) << known.text("name", "");
}

INSTANTIATE_TEST_SUITE_P(All, PublishedModel,
                         testing::ValuesIn(names_in("tests/golden/hf_published")),
                         [](const auto& info) { return info.param; });

TEST(Families, HaveAStoredCaseAndAPublishedModelEach) {
  for (const Family& family : families()) {
    if (std::string(family.name) == "weft") continue;
    EXPECT_TRUE(fs::exists(stored(family.name) + "/config.json")) << family.name;
    EXPECT_TRUE(fs::exists(in_project("tests/golden/hf_published/") + family.name + ".json"));
  }
}

class Convert : public testing::Test {
 protected:
  // A copy of the stored llama, to be damaged.
  std::string copy(const std::string& family = "llama") {
    fs::copy(stored(family), folder.path() / "hf");
    return folder / "hf";
  }
  std::string refusal(const std::string& path) {
    return message_of<ConfigError>([&] {
      HfFolder from(path);
      plan_import(from);
    });
  }
  void edit_config(const std::string& path, const std::function<void(nlohmann::json&)>& edit) {
    nlohmann::json config = HfConfig::load(path + "/config.json").json();
    edit(config);
    put_file(path + "/config.json", config.dump());
  }
  void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << part << " is not in:\n" << message;
    }
  }
  Runtime runtime{1};
  ScratchFolder folder;
};

TEST_F(Convert, NamesTheNearestModelType) {
  const std::string path = copy();
  edit_config(path, [](nlohmann::json& c) { c["model_type"] = "lama"; });
  expect_parts(refusal(path), {"config.json", "model_type = \"lama\"", "nearest: 'llama'"});
}

TEST_F(Convert, ListsTensorsThatAreMissingOrTooMany) {
  const std::string path = copy();
  edit_config(path, [](nlohmann::json& c) { c["num_hidden_layers"] = 3; });
  expect_parts(refusal(path), {"missing 9 tensors", "model.layers.2.self_attn.q_proj.weight"});
  edit_config(path, [](nlohmann::json& c) { c["num_hidden_layers"] = 1; });
  expect_parts(refusal(path), {"not of this model 9 tensors", "model.layers.1.mlp.up_proj.weight"});
}

TEST_F(Convert, ShowsBothShapes) {
  const std::string path = copy();
  edit_config(path, [](nlohmann::json& c) { c["intermediate_size"] = 28; });
  expect_parts(refusal(path), {"model.layers.0.mlp.gate_proj.weight is [27, 20]", "[28, 20]"});
}

TEST_F(Convert, RefusesVariantsItHasNoPartFor) {
  const std::string path = copy();
  edit_config(path, [](nlohmann::json& c) { c["attention_bias"] = true; });
  expect_parts(refusal(path), {"attention_bias = true", "supported: false"});
  edit_config(path, [](nlohmann::json& c) {
    c["attention_bias"] = false;
    c["rope_parameters"]["rope_type"] = "dynamic";
  });
  expect_parts(refusal(path), {"rope_parameters", "dynamic", "llama3"});
  edit_config(path, [](nlohmann::json& c) { c["rope_parameters"]["rope_type"] = "llama3"; });
  expect_parts(refusal(path), {"rope_parameters", "factor is missing"});
  edit_config(path, [](nlohmann::json& c) {
    c["rope_parameters"]["rope_type"] = "default";
    c["partial_rotary_factor"] = 0.5;
  });
  expect_parts(refusal(path), {"partial_rotary_factor = 0.5", "all channels"});
  edit_config(path, [](nlohmann::json& c) { c["num_attention_heads"] = "four"; });
  expect_parts(refusal(path), {"num_attention_heads", "must be an integer"});
  edit_config(path, [](nlohmann::json& c) { c.erase("hidden_size"); });
  expect_parts(refusal(path), {"hidden_size is missing"});
}

TEST_F(Convert, RefusesATruncatedFile) {
  const std::string path = copy();
  const std::string whole = get_file(path + "/model.safetensors");
  put_file(path + "/model.safetensors", whole.substr(0, whole.size() - 100));
  expect_parts(refusal(path), {"model.safetensors"});
  put_file(path + "/model.safetensors", whole.substr(0, 40));
  expect_parts(refusal(path), {"model.safetensors", "truncated"});
}

TEST_F(Convert, RefusesAnIndexThatLies) {
  copy();
  HfFolder from(folder / "hf");
  import_model(runtime, from, folder / "ckpt");
  export_model(runtime, folder / "ckpt", folder / "out", {.shard_bytes = 9000});
  const std::string index = folder / "out/model.safetensors.index.json";
  const nlohmann::json good = nlohmann::json::parse(get_file(index));
  const auto with = [&](const std::string& tensor, const std::string& file) {
    nlohmann::json bad = good;
    bad["weight_map"][tensor] = file;
    put_file(index, bad.dump());
    return refusal(folder / "out");
  };
  expect_parts(with("model.norm.weight", "../ckpt/x.safetensors"), {"plain names"});
  expect_parts(with("model.norm.weight", "absent.safetensors"), {"absent.safetensors"});
  expect_parts(with("ghost", good["weight_map"]["model.norm.weight"]), {"ghost"});
}

TEST_F(Convert, ReadsWhatItWroteInSeveralFiles) {
  HfFolder from(stored("qwen3_next"));
  import_model(runtime, from, folder / "ckpt");
  const ExportReport report =
      export_model(runtime, folder / "ckpt", folder / "out", {.shard_bytes = 9000});
  EXPECT_GT(report.files, 5);
  expect_same_tensors(stored("qwen3_next"), folder / "out");
  HfFolder again(folder / "out");
  import_model(runtime, again, folder / "again");
  export_model(runtime, folder / "again", folder / "twice", {});
  EXPECT_EQ(get_file(folder / "twice/config.json"), get_file(folder / "out/config.json"));
  EXPECT_EQ(HfFolder(folder / "twice").tensors().size(), from.tensors().size());
  expect_same_tensors(stored("qwen3_next"), folder / "twice");
}

TEST_F(Convert, HalvesStayHalves) {
  HfFolder from(stored("llama"));
  import_model(runtime, from, folder / "ckpt");
  export_model(runtime, folder / "ckpt", folder / "half", {.dtype = FileDtype::kF16});
  HfFolder half(folder / "half");
  for (const auto& [name, found] : half.tensors())
    EXPECT_EQ(found.tensor->type_name, "F16") << name;
  EXPECT_EQ(half.config().json()["dtype"], "float16");
  import_model(runtime, half, folder / "again");
  export_model(runtime, folder / "again", folder / "out", {});
  EXPECT_EQ(get_file(folder / "out/model.safetensors"),
            get_file(folder / "half/model.safetensors"));
}

// Weft's own models: any mixers, any experts.
TEST_F(Convert, KeepsModelsThatNoClassDescribes) {
  const Config config = config_from_text(R"(
[model]
vocab = 31
hidden = 24
layers = 3
pattern = "LN"
[model.layer.L]
mixer = "gla"
heads = 2
gate_rank = 5
ffn = "moe"
[model.layer.N]
mixer = "fox"
heads = 3
ffn = "dense"
[model.moe]
experts = 3
active = 2
ffn = 10
router = "sigmoid_bias"
[train]
precision = "f32"
)",
                                         "own.toml");
  ParameterStore store;
  const ModelStage stage(config.model, Recompute::kNone, DType::kF32, store);
  store.allocate(runtime.pool(), DType::kF32, ParameterStore::Gradients::kNone);
  initialize(runtime.exec(), store, 5);
  Manifest manifest;
  manifest.config = resolved(config);
  save_checkpoint(checkpoint_folder(folder / "run"), manifest, saved_weights(store), 0);
  EXPECT_EQ(export_model(runtime, folder / "run", folder / "out", {}).family, "weft");
  HfFolder exported(folder / "out");
  EXPECT_EQ(exported.config().text("model_type", ""), "weft");
  import_model(runtime, exported, folder / "again");
  const FoundCheckpoint again = open_checkpoint(folder / "again");
  const LoadedModel before(runtime, open_checkpoint(folder / "run"), DType::kF32);
  LoadedModel after(runtime, again, DType::kF32);
  EXPECT_TRUE(same_model(after.config().model, config.model));
  for (Parameter& p : store.all()) {
    EXPECT_TRUE(SameBits(p.master, after.store().find(p.spec.name)->master)) << p.spec.name;
  }
}

// Memory holds one tensor at a time, not the model.
TEST_F(Convert, HoldsOneTensorAtATime) {
  HfFolder from(stored("granitemoehybrid"));
  int64_t largest = 0;
  for (const auto& [name, found] : from.tensors()) {
    largest = std::max<int64_t>(largest, 4 * found.tensor->shape.elements());
  }
  import_model(runtime, from, folder / "ckpt");
  EXPECT_LE(runtime.ledger().total().peak, 2 * largest);
  export_model(runtime, folder / "ckpt", folder / "out", {.dtype = FileDtype::kBF16});
  EXPECT_LE(runtime.ledger().total().peak, 3 * largest);
}

TEST_F(Convert, IsACommandThatCountsImportsEvaluatesAndExports) {
  const Outcome dry = run_weft({"convert", "import", stored("mixtral"), "--dry-run"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  expect_parts(dry.out, {"mixtral", "11900 parameters"});
  const Outcome in = run_weft({"convert", "import", stored("mixtral"), folder / "ckpt"});
  EXPECT_EQ(in.code, 0) << in.err;
  const SafetensorsFile expected(stored("mixtral") + "/expected.st");
  const Outcome logits = run_weft({"eval", "logits", "--checkpoint", folder / "ckpt", "--tokens",
                                   expected.path(), "--out", folder / "logits.st"});
  EXPECT_EQ(logits.code, 0) << logits.err;
  EXPECT_TRUE(
      Near(SafetensorsFile(folder / "logits.st").view("logits"), expected.view("logits"), 2e-5));
  const Outcome out = run_weft({"convert", "export", folder / "ckpt", folder / "out"});
  EXPECT_EQ(out.code, 0) << out.err;
  expect_same_tensors(stored("mixtral"), folder / "out");
  const Outcome bad = run_weft({"convert", "import", folder / "nothing", folder / "x"});
  EXPECT_EQ(bad.code, 2);
  expect_parts(bad.err, {"nothing", "is not a folder"});
}

TEST_F(Convert, LeavesAFullFolderAlone) {
  HfFolder from(stored("llama"));
  put_file(folder / "note", "mine");
  expect_parts(
      message_of<ConfigError>([&] { import_model(runtime, from, folder.path().string()); }),
      {"is not empty"});
}

}  // namespace
}  // namespace weft::test
