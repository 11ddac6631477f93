#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "parallel/comm/communicator.h"

namespace weft {

// What every communicator demands of the views it is given, whatever carries the bytes: contiguous,
// in the memory that the communicator serves (the host's, if not said), sizes that fit each other.
// Breaking it is our own mistake.
void check_all_reduce(const Communicator& comm, ConstView inout, Device where = {});
void check_all_gather(const Communicator& comm, ConstView mine, ConstView all, Device where = {});
void check_reduce_scatter(const Communicator& comm, ConstView all, ConstView mine,
                          Device where = {});
void check_all_to_all(const Communicator& comm, ConstView send, std::span<const int64_t> send_rows,
                      ConstView recv, std::span<const int64_t> recv_rows, Device where = {});
void check_transfer(const Communicator& comm, const Transfer& transfer, Device where = {});

// "all_reduce(f32 [3, 4])": what ranks compare to see that they call the same.
std::string signature(const char* call, ConstView view);
std::string row_signature(ConstView send);  // of all_to_all_v: rows may differ, their width not

// Messages between hosts as transfers of host memory.
std::vector<Transfer> transfers_of(std::span<const HostGroup::Message> together);

inline int64_t bytes_of(ConstView view) { return view.shape.elements() * size_of(view.dtype); }

}  // namespace weft
