#include "kernels/matrix/cpu/gemm_driver.h"

#include <algorithm>

#include "core/host_access.h"

namespace weft::kernels {
namespace {

// Panels packed for one call at a time: they should still be in the last-level cache when they are
// read.
constexpr int64_t kMaxPackedBytes = 8 << 20;
// Columns of a tile: the rows of a are packed once per tile, so tiles are wide where there is
// enough work.
constexpr int64_t kMaxTileColumns = 2048;
constexpr int64_t kMinTileColumns = 128;
// More tiles than threads, so that a thread that was held up leaves work to the others.
constexpr int64_t kTilesPerThread = 2;

// Columns of a product that are packed (or not) and multiplied together.
struct Piece {
  const GemmProduct* product;
  int64_t first_column, columns;
  bool on_the_way;    // a tile holds all rows: b is read once and needs no panels kept
  int64_t packed_at;  // bytes into the scratch of panels; -1: the product brings its panels
};

struct Tile {
  const Piece* piece;
  int64_t row, rows, column, columns;
};

int64_t blocks(int64_t extent, int64_t most) { return (extent + most - 1) / most; }

struct TileSize {
  int64_t rows, columns;
};

int64_t rows_of(const Piece& piece, TileSize size) {
  return piece.on_the_way ? piece.product->m : size.rows;
}

int64_t count_tiles(std::span<const Piece> pieces, TileSize size) {
  int64_t count = 0;
  for (const Piece& piece : pieces) {
    count += blocks(piece.product->m, rows_of(piece, size)) * blocks(piece.columns, size.columns);
  }
  return count;
}

TileSize tile_size(const GemmKernels& kernels, std::span<const Piece> pieces, int64_t threads) {
  TileSize size{kernels.max_rows, kMaxTileColumns};
  if (threads == 1) return size;
  const int64_t wanted = kTilesPerThread * threads;
  while (count_tiles(pieces, size) < wanted) {
    if (size.columns > 2 * kMinTileColumns) {
      size.columns /= 2;
    } else if (size.rows > kernels.max_rows / 2) {
      size.rows = round_up(size.rows / 2, kernels.mr);
    } else if (size.columns > kMinTileColumns) {
      size.columns /= 2;
    } else {
      break;
    }
  }
  return size;
}

// `extent` cut into `parts` runs of whole steps, whose lengths differ by one step at most.
struct Cut {
  int64_t extent, step, parts;
  int64_t at(int64_t part) const {
    return std::min(extent, blocks(extent, step) * part / parts * step);
  }
  int64_t length(int64_t part) const { return at(part + 1) - at(part); }
};

struct Cuts {
  Cut rows, columns;
};

// Tiles of the only product of a call are as many for every thread, and all about the same.
Cuts cuts_of(const GemmKernels& kernels, const Piece& piece, TileSize size, int64_t threads) {
  const int64_t m = piece.product->m, n = piece.columns;
  const int64_t down = blocks(m, kernels.mr), across = blocks(n, kernels.nr);
  int64_t rows = blocks(down, std::max<int64_t>(1, rows_of(piece, size) / kernels.mr));
  int64_t columns = blocks(across, size.columns / kernels.nr);
  if (piece.on_the_way) {
    rows = 1;
    columns = std::min(across, round_up(columns, threads));
  } else if (columns % threads != 0) {
    rows = std::min(down, round_up(rows, threads));
  }
  return {{m, kernels.mr, rows}, {n, kernels.nr, columns}};
}

double cost(const Tile& tile) {
  return static_cast<double>(tile.rows * tile.columns) *
         static_cast<double>(tile.piece->product->k);
}

// With products of different sizes the dearest tiles come first, and the last ones in halves: the
// thread that takes the last tile works alone for as long as it lasts.
void order(const GemmKernels& kernels, int64_t threads, std::vector<Tile>& tiles) {
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const Tile& x, const Tile& y) { return cost(x) > cost(y); });
  const auto count = static_cast<int64_t>(tiles.size());
  for (int64_t i = std::max<int64_t>(0, count - 2 * threads); i < count; ++i) {
    Tile& tile = tiles[static_cast<size_t>(i)];
    if (tile.piece->on_the_way || tile.rows < 4 * kernels.mr) continue;
    Tile rest = tile;
    tile.rows = round_up(tile.rows / 2, kernels.mr);
    rest.row += tile.rows;
    rest.rows -= tile.rows;
    tiles.push_back(rest);
  }
}

std::vector<Tile> cut(const GemmKernels& kernels, std::span<const Piece> pieces, int64_t threads) {
  const TileSize size = tile_size(kernels, pieces, threads);
  std::vector<Tile> tiles;
  for (const Piece& piece : pieces) {
    const Cuts cuts = cuts_of(kernels, piece, size, pieces.size() == 1 ? threads : 1);
    for (int64_t i = 0; i < cuts.rows.parts; ++i) {
      for (int64_t j = 0; j < cuts.columns.parts; ++j) {
        tiles.push_back({&piece, cuts.rows.at(i), cuts.rows.length(i), cuts.columns.at(j),
                         cuts.columns.length(j)});
      }
    }
  }
  if (threads > 1 && pieces.size() > 1) order(kernels, threads, tiles);
  return tiles;
}

GemmTile described(const GemmKernels& kernels, const Tile& tile, const char* panels,
                   GemmResult result) {
  const Piece& piece = *tile.piece;
  const GemmProduct& product = *piece.product;
  const int64_t column = piece.first_column + tile.column;
  const int64_t panel = panel_elements(kernels, product.k);
  GemmTile out;
  out.a = product.a;
  out.b = product.b;
  out.first_row = tile.row;
  out.rows = tile.rows;
  out.first_column = column;
  out.columns = tile.columns;
  out.k = product.k;
  if (product.panels != nullptr) {
    out.panels = static_cast<const char*>(product.panels) +
                 column / kernels.nr * panel * kernels.packed_bytes;
  } else if (piece.packed_at >= 0) {
    out.panels = panels + piece.packed_at + tile.column / kernels.nr * panel * kernels.packed_bytes;
  }
  out.panel_stride = panel;
  out.c = static_cast<char*>(product.c) +
          (tile.row * product.c_stride + column) * size_of(result.dtype);
  out.c_stride = product.c_stride;
  out.c_bf16 = result.dtype == DType::kBF16;
  out.accumulate = result.write == Write::kAccumulate;
  return out;
}

void multiply(Exec& exec, const GemmKernels& kernels, std::span<const Piece> pieces,
              GemmResult result) {
  Tensor packed;
  std::vector<GemmRight> rights;
  int64_t bytes = 0;
  for (const Piece& piece : pieces) {
    if (piece.packed_at < 0) continue;
    const int64_t elements = packed_elements(kernels, piece.product->k, piece.columns);
    bytes = std::max(bytes, piece.packed_at + elements * kernels.packed_bytes);
  }
  if (bytes > 0) packed = exec.scratch({bytes / 4}, DType::kI32);
  auto* panels = static_cast<char*>(host_bytes(packed));
  for (const Piece& piece : pieces) {
    if (piece.packed_at < 0) continue;
    rights.push_back({piece.product->b, piece.first_column, piece.columns, piece.product->k,
                      panels + piece.packed_at});
  }
  pack_right(exec, kernels, rights);

  const std::vector<Tile> tiles = cut(kernels, pieces, exec.threads.size());
  int64_t most = 0;
  for (const Tile& tile : tiles) {
    most = std::max(most, kernels.scratch_bytes(tile.rows, tile.columns));
  }
  most = round_up(most, 64);
  const Tensor scratch = exec.scratch({exec.threads.size(), most / 4}, DType::kI32);
  exec.threads.run_on(static_cast<int64_t>(tiles.size()), [&](int64_t i, int thread) {
    GemmTile tile = described(kernels, tiles[static_cast<size_t>(i)], panels, result);
    tile.scratch = static_cast<char*>(host_bytes(scratch)) + thread * most;
    kernels.tile(tile);
  });
}

}  // namespace

const GemmKernels& gemm_kernels(Isa isa, DType dtype) {
  const GemmTable& table = table_of<GemmTable>(isa);
  return dtype == DType::kBF16 ? table.bf16 : table.f32;
}

GemmOperand operand(ConstView matrix, bool along_k, int64_t first_row, const int32_t* gather) {
  if (gather != nullptr) return {matrix.data, matrix.row_stride, gather + first_row, along_k};
  const char* data =
      static_cast<const char*>(matrix.data) + first_row * matrix.row_stride * size_of(matrix.dtype);
  return {data, matrix.row_stride, nullptr, along_k};
}

GemmProduct product_with(const GemmKernels& kernels, const PackedMatrices& b, int64_t group) {
  const bool turned = b.transpose() == Transpose::kYes;
  GemmProduct p;
  p.b = operand(b.plain(), turned, group * (turned ? b.n() : b.k()));
  p.n = b.n();
  p.k = b.k();
  if (!b.packed()) return p;
  WEFT_CHECK(b.panels().shape()[1] == packed_elements(kernels, b.k(), b.n()) &&
                 size_of(b.panels().dtype()) == kernels.packed_bytes,
             "matrices were packed for another instruction set than this product's");
  p.panels = host_bytes(b.panels().row(group));
  return p;
}

void pack_right(Exec& exec, const GemmKernels& kernels, std::span<const GemmRight> rights) {
  constexpr int64_t kTaskElements = 64 * 1024;
  std::vector<GemmPack> tasks;
  for (const GemmRight& right : rights) {
    const int64_t panel = panel_elements(kernels, right.k);
    if (panel == 0) continue;
    const int64_t columns = std::max<int64_t>(1, kTaskElements / panel) * kernels.nr;
    for (int64_t column = 0; column < right.columns; column += columns) {
      void* out =
          static_cast<char*>(right.panels) + column / kernels.nr * panel * kernels.packed_bytes;
      tasks.push_back({right.b, right.first_column + column,
                       std::min(columns, right.columns - column), 0, right.k, out, panel});
    }
  }
  exec.threads.run(static_cast<int64_t>(tasks.size()),
                   [&](int64_t i) { kernels.pack_b(tasks[static_cast<size_t>(i)]); });
}

void run_products(Exec& exec, const GemmKernels& kernels, std::span<const GemmProduct> products,
                  GemmResult result) {
  std::vector<Piece> pieces;
  int64_t packed = 0;
  const auto flush = [&] {
    if (!pieces.empty()) multiply(exec, kernels, pieces, result);
    pieces.clear();
    packed = 0;
  };
  for (const GemmProduct& product : products) {
    if (product.m == 0 || product.n == 0) continue;
    if (product.k == 0 && result.write == Write::kAccumulate) continue;
    const bool on_the_way = product.panels == nullptr && product.m <= kernels.max_rows;
    if (on_the_way || product.panels != nullptr || product.k == 0) {
      pieces.push_back({&product, 0, product.n, on_the_way, -1});
      continue;
    }
    const int64_t panel = panel_elements(kernels, product.k) * kernels.packed_bytes;
    const int64_t most = std::max<int64_t>(1, kMaxPackedBytes / panel) * kernels.nr;
    for (int64_t column = 0; column < product.n; column += most) {
      const int64_t columns = std::min(most, product.n - column);
      const int64_t bytes = round_up(columns, kernels.nr) / kernels.nr * panel;
      if (packed > 0 && packed + bytes > kMaxPackedBytes) flush();
      pieces.push_back({&product, column, columns, false, packed});
      packed = round_up(packed + bytes, 64);
    }
  }
  flush();
}

}  // namespace weft::kernels
