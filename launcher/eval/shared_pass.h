#pragma once

#include "core/data/dataset_pass.h"
#include "core/memory/exec.h"
#include "parallel/comm/host_group.h"

namespace weft {

// The pass over all bytes of a dataset, each rank over its part of the blocks; collective, with
// equal results on all ranks. ConfigError when the files differ in size between ranks, or contain a
// token beyond the vocabulary. Rank 0 shows progress when it takes long.
DatasetHashes check_together(const IndexedDataset& data, int64_t vocab, Exec& exec,
                             HostGroup& ranks);

}  // namespace weft
