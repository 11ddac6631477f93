#include "launcher/train/pipeline.h"

#include <algorithm>
#include <limits>
#include <map>

#include "launcher/train/micro_batch.h"
#include "launcher/train/step_reports.h"

namespace weft {
namespace {

Recompute recompute_mode(const TrainConfig& config) {
  if (config.recompute == "full") return Recompute::kFull;
  return config.recompute == "selective" ? Recompute::kSelective : Recompute::kNone;
}

DType precision_of(const TrainConfig& config) {
  return config.precision == "bf16" ? DType::kBF16 : DType::kF32;
}

std::vector<ModelStage> make_stages(const Config& config, const ParallelConfig& degrees, int rank,
                                    ParameterStore& store, Communicator* tensor_ranks = nullptr) {
  std::vector<ModelStage> stages;
  for (int chunk = 0; chunk < degrees.virtual_stages; ++chunk) {
    const IndexRange layers =
        layers_of_stage(degrees, config.model.layers, chunk * degrees.pipe + rank);
    stages.emplace_back(config.model, recompute_mode(config.train), precision_of(config.train),
                        store, ModelStage::Part{layers.begin, layers.end}, tensor_ranks);
  }
  return stages;
}

SpanTravel travel_of(const ParallelConfig& parallel, const Overlaps& overlaps) {
  return {parallel.sequence_exchange == "scan" ? SpanExchange::kScan : SpanExchange::kGather,
          overlaps.rows};
}

// What the layers are told of the ranks around this one, for a micro-batch of `rows` sequences.
StepContext context_of(const Mesh& mesh, const ParallelConfig& parallel, Overlap overlap,
                       const MicroBatch& micro, int64_t rows) {
  const auto others = [&](std::initializer_list<Axis> axes) {
    Communicator& ranks = mesh.over(axes);
    return ranks.size() > 1 ? &ranks : nullptr;
  };
  return {.row_tokens = micro.sequence.tokens() / rows,
          .first_token = micro.first_token,
          .token_ranks = others({Axis::kTensor, Axis::kSequence}),
          .span_ranks = others({Axis::kSequence}),
          .expert_ranks = others({Axis::kExpertTensor, Axis::kExpert}),
          .travel = parallel.deduplicate ? Travel::kOncePerRank : Travel::kOncePerExpert,
          .overlap = overlap};
}

}  // namespace

ModelOutline::ModelOutline(const Config& config, const Layout& layout) {
  std::map<std::string, size_t> index;
  for (int rank = 0; rank < layout.degrees.pipe; ++rank) {
    Coordinates here;  // whole on the other axes
    here[Axis::kPipe] = {rank, layout.degrees.pipe};
    ParameterStore store(here);
    const std::vector<ModelStage> stages = make_stages(config, layout.degrees, rank, store);
    for (const ModelStage& stage : stages) {
      flops_per_token += stage.flops_per_token(config.train.sequence);
    }
    for (const Parameter& p : store.all()) {
      const auto [at, added] = index.emplace(p.spec.name, parameters.size());
      if (added) parameters.push_back(p.spec);
      parameters[at->second].held_by.push_back(rank);
    }
  }
  for (ParameterSpec& spec : parameters) {
    if (spec.held_by.size() == 1) spec.held_by.clear();
  }
}

void ModelOutline::mark_holders(ParameterStore& store) const {
  for (const ParameterSpec& spec : parameters) {
    if (spec.held_by.empty()) continue;
    if (Parameter* here = store.find(spec.name)) here->spec.held_by = spec.held_by;
  }
}

Pipeline::Pipeline(const Config& config, const Mesh& mesh, ParameterStore& store,
                   const TrainerOptions& options)
    : config_(config),
      mesh_(mesh),
      options_(options),
      overlaps_(overlaps_of(config.parallel, options.overlap)),
      stages_(make_stages(config, mesh.layout().degrees, mesh.here()[Axis::kPipe].index, store,
                          &mesh.over({Axis::kTensor}))) {}

// One pass of micro-batches through this rank's stages.
class PipelineRun {
 public:
  PipelineRun(const Pipeline& pipe, Exec& exec, const StepBatch& batch, RoutingTrace* trace,
              GradientSync* sync)
      : config_(pipe.config_),
        fault_(pipe.options_.fault),
        overlaps_(pipe.overlaps_),
        stages_(pipe.stages_),
        exec_(exec),
        mesh_(pipe.mesh_),
        ranks_(pipe.mesh_.over({Axis::kPipe})),
        activity_(pipe.mesh_.activity()),
        spans_(pipe.mesh_.trace()),
        batch_(batch),
        rows_(batch.batch.tokens.elements() / pipe.config_.train.sequence),
        trace_(trace),
        sync_(sync),
        moe_(pipe.stages_.size()),
        pruning_(pipe.stages_.size()) {}

  int counted = std::numeric_limits<int>::max();  // micro-batches whose loss is, from the first

  int micro_batches() const {
    const int64_t size = config_.train.micro_batch;
    return static_cast<int>((rows_ + size - 1) / size);
  }

  void run(const Plan& plan) {
    const CoreTimer whole(&times_.whole);
    for (const ActionGroup& group : grouped(plan)) {
      if (is_transfer(plan[group.begin].step)) {
        exchange({plan.data() + group.begin, group.end - group.begin});
      } else {
        const CoreTimer busy(&times_.busy);
        compute(plan[group.begin]);
      }
    }
    finish_sends(sending_);
  }

  StepSums sums() const {
    StepSums sums{.loss = loss_, .times = times_};
    for (const auto& reports : moe_)
      sums.moe.insert(sums.moe.end(), reports.begin(), reports.end());
    for (const auto& reports : pruning_) {
      sums.pruning.insert(sums.pruning.end(), reports.begin(), reports.end());
    }
    return sums;
  }

 private:
  // A micro-batch in one stage.
  struct Flight {
    int64_t rows = 0;
    MicroBatch micro;
    RoutingTrace::Tokens traced;
    Passage passage;
    SavedStack::Later later;
    Crossing entering, leaving, d_leaving, d_entering;
  };
  struct Sending {
    std::unique_ptr<Pending> pending;
    std::vector<Crossing> kept;  // until they have arrived
  };

  int stage_of(const Action& a) const { return a.chunk * ranks_.size() + ranks_.rank(); }
  const ModelStage& chunk_of(const Action& a) const {
    return stages_[static_cast<size_t>(a.chunk)];
  }

  Flight& flight(const Action& a) {
    const auto [at, added] = flights_.try_emplace({a.micro_batch, a.chunk});
    if (added) begin(a.micro_batch, at->second);
    return at->second;
  }

  // The rows of a micro-batch as this rank sees them.
  void begin(int micro_batch, Flight& f) {
    const TrainConfig& train = config_.train;
    const int64_t first = micro_batch * train.micro_batch,
                  count = std::min(train.micro_batch, rows_ - first);
    f.rows = count;
    f.micro = micro_batch_of(exec_, batch_.batch, {first, count, train.sequence},
                             {mesh_.over({Axis::kSequence}), mesh_.over({Axis::kTensor}),
                              travel_of(config_.parallel, overlaps_)});
    if (train.chunk_states == "keep") f.micro.sequence.chunk_states = ChunkStates::kKept;
    f.passage.context = context_of(mesh_, config_.parallel,
                                   overlaps_.rows ? Overlap::kOn : Overlap::kOff, f.micro, count);
    f.passage.context.aux_scale = static_cast<float>(share(count));
    f.passage.activity = &activity_;
    f.traced.step = batch_.step;
    for (const MicroBatch::Run& run : f.micro.runs) {
      f.traced.runs.push_back({run.begin + batch_.rows_before * train.sequence, run.count});
    }
    if (trace_ != nullptr) trace_->before(exec_, f.traced, f.passage.context);
  }

  // Of the step's rows.
  double share(int64_t rows) const {
    return static_cast<double>(rows) / static_cast<double>(config_.train.global_batch);
  }

  StageWork work(const Flight& f) const {
    return {f.micro.tokens, f.micro.targets, f.micro.sequence,
            static_cast<float>(1.0 / batch_.targets)};
  }

  void compute(const Action& a) {
    Flight& f = flight(a);
    const TraceScope scope(spans_,
                           a.step == Step::kForward          ? "forward"
                           : a.step == Step::kBackwardWeight ? "gradients of weights"
                                                             : "backward",
                           -1, a.micro_batch);
    switch (a.step) {
      case Step::kForward: return forward(a, f);
      case Step::kBackwardInput: f.passage.saved.put_off_to(&f.later); [[fallthrough]];
      case Step::kBackward:
        backward(a, f);
        f.d_leaving = {};
        f.passage = {};
        f.micro = {};
        return;
      default:
        for (const auto& add : f.later) add(exec_);
        f.later.clear();
    }
  }

  // Gradients that the step's last backward has completed begin to travel behind each block. (Those
  // that were put off are complete only at the end.)
  void backward(const Action& a, Flight& f) {
    const ModelStage& stage = chunk_of(a);
    const bool completes =
        overlaps_.sums && a.step == Step::kBackward && a.micro_batch + 1 == micro_batches();
    Tensor dx = stage.begin_backward(exec_, f.d_leaving, f.passage);
    for (int64_t layer = stage.part().end - 1; layer >= stage.part().begin; --layer) {
      enter("backward", layer);
      const TraceScope scope(spans_, "backward of layer", layer, a.micro_batch);
      dx = stage.backward_block(exec_, work(f), layer, dx, f.passage);
      if (completes) sync_->layer_done(exec_, layer);
    }
    f.d_entering = stage.end_backward(exec_, dx, f.passage);
  }

  // Records where this rank is, for messages about ranks that fail or wait.
  void enter(const char* phase, int64_t layer) {
    activity_.at(phase, layer);
    if (trace_ != nullptr) fault_.in_layer(mesh_.rank(), batch_.step + 1, phase, layer);
  }

  void await_weights(int64_t layer) {
    if (sync_ != nullptr) sync_->await_values(exec_, layer);
  }

  void forward(const Action& a, Flight& f) {
    const auto chunk = static_cast<size_t>(a.chunk);
    const auto gradients = trace_ != nullptr ? LossHead::Gradients::kYes : LossHead::Gradients::kNo;
    const ModelStage& stage = chunk_of(a);
    await_weights(-1);
    Tensor x = stage.begin_forward(exec_, work(f), f.entering, f.passage);
    for (int64_t layer = stage.part().begin; layer < stage.part().end; ++layer) {
      enter("forward", layer);
      const TraceScope scope(spans_, "forward of layer", layer, a.micro_batch);
      await_weights(layer);
      x = stage.forward_block(exec_, work(f), layer, x, f.passage);
    }
    f.leaving = stage.end_forward(exec_, work(f), x, gradients, f.passage);
    f.entering = {};
    if (a.micro_batch < counted) loss_ += f.passage.loss_sum;
    if (trace_ == nullptr) {
      f.passage = {};
      return;
    }
    const StepContext& context = f.passage.context;
    trace_->after(f.traced, context);
    add_reports(context.reports, share(f.rows), f.traced.runs.empty() ? 0 : f.traced.runs[0].begin,
                moe_[chunk]);
    add_pruning(context.pruning, pruning_[chunk]);
  }

  // Sends are started before receives are waited for, and waited for one exchange later: whoever
  // receives has come by then, or comes because of what was just sent.
  void exchange(std::span<const Action> group) {
    Sending sends;
    std::vector<Transfer> out, in;
    for (const Action& a : group) {
      if (a.step == Step::kSendForward) send(a, flight(a).leaving, sends, out);
      if (a.step == Step::kSendBackward) send(a, flight(a).d_entering, sends, out);
    }
    for (const Action& a : group) {
      if (a.step == Step::kRecvForward) receive(a, flight(a).entering, in);
      if (a.step == Step::kRecvBackward) receive(a, flight(a).d_leaving, in);
    }
    const auto receiving = ranks_.start(exec_, in);
    sends.pending = ranks_.start(exec_, out);
    receiving->wait();
    finish_sends(sending_);
    sending_ = std::move(sends);
  }

  static void finish_sends(Sending& sends) {
    if (sends.pending) sends.pending->wait();
    sends = {};
  }

  // Messages into one stage from one side come in the order of micro-batches.
  static int tag_of(bool forward, int receiving_stage) { return 2 * receiving_stage + forward; }

  void send(const Action& a, Crossing& crossing, Sending& sends, std::vector<Transfer>& out) {
    const bool forward = a.step == Step::kSendForward;
    const int stage = stage_of(a) + (forward ? 1 : -1);
    const int peer = stage % ranks_.size();
    if (peer == ranks_.rank()) {  // a later stage of this rank
      at_home_[{tag_of(forward, stage), a.micro_batch}] = std::move(crossing);
    } else {
      add(Transfer::Kind::kSend, peer, crossing, tag_of(forward, stage), out);
      sends.kept.push_back(std::move(crossing));
    }
    crossing = {};
  }

  void receive(const Action& a, Crossing& crossing, std::vector<Transfer>& in) {
    const bool forward = a.step == Step::kRecvForward;
    const int stage = stage_of(a), tag = tag_of(forward, stage);
    const int peer = (stage + (forward ? -1 : 1)) % ranks_.size();
    if (peer == ranks_.rank()) {
      crossing = std::move(at_home_.at({tag, a.micro_batch}));
      at_home_.erase({tag, a.micro_batch});
      return;
    }
    const int64_t tokens = flight(a).micro.tokens.elements();
    crossing = forward ? chunk_of(a).entering(exec_, tokens) : chunk_of(a).d_leaving(exec_, tokens);
    add(Transfer::Kind::kRecv, peer, crossing, tag, in);
  }

  static void add(Transfer::Kind kind, int peer, const Crossing& crossing, int tag,
                  std::vector<Transfer>& to) {
    to.push_back({kind, peer, crossing.x, tag});
    if (crossing.first_value.defined()) to.push_back({kind, peer, crossing.first_value, tag});
  }

  const Config& config_;
  const Fault& fault_;
  const Overlaps& overlaps_;
  const std::vector<ModelStage>& stages_;
  Exec& exec_;
  const Mesh& mesh_;
  Communicator& ranks_;
  Activity& activity_;
  Trace& spans_;
  const StepBatch& batch_;
  int64_t rows_;                                   // of the batch
  RoutingTrace* trace_;                            // null: forward alone
  GradientSync* sync_;                             // null: forward alone, all weights are here
  std::map<std::pair<int, int>, Flight> flights_;  // by micro-batch and chunk
  std::map<std::pair<int, int>, Crossing> at_home_;
  Sending sending_;
  double loss_ = 0;
  PipeTimes times_;
  std::vector<std::vector<MoeReport>> moe_;  // by chunk
  std::vector<std::vector<PruningReport>> pruning_;
};

StepSums Pipeline::train(Exec& exec, const StepBatch& batch, RoutingTrace& trace,
                         GradientSync& sync) const {
  PipelineRun run(*this, exec, batch, &trace, &sync);
  const Communicator& ranks = mesh_.over({Axis::kPipe});
  run.run(plan_of(pipe_schedule(config_.parallel.schedule),
                  {ranks.size(), run.micro_batches(), config_.parallel.virtual_stages},
                  ranks.rank()));
  return run.sums();
}

double Pipeline::evaluate(Exec& exec, const Batch& batch, int counted) const {
  const StepBatch all{.batch = batch};
  PipelineRun run(*this, exec, all, nullptr, nullptr);
  run.counted = counted;
  if (run.micro_batches() == 0) return 0;
  const Communicator& ranks = mesh_.over({Axis::kPipe});
  run.run(forward_plan({ranks.size(), run.micro_batches(), config_.parallel.virtual_stages},
                       ranks.rank()));
  return run.sums().loss;
}

}  // namespace weft
