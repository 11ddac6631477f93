#pragma once

#include <vector>

#include "tests/support/vgpu/wire/message.h"

namespace vgpu {

// A message taken apart.
struct Command {
  Header header;
  std::vector<uint32_t> clock;
  std::vector<Ticket> waits;
  Bytes body;
};

inline Bytes packed(Op op, Ticket ticket, Fault fault, std::span<const uint32_t> clock,
                    std::span<const Ticket> waits, const Bytes& body) {
  Writer w;
  w.put(Header{op, ticket, fault, static_cast<uint32_t>(clock.size()),
               static_cast<uint32_t>(waits.size())});
  w.put_bytes(clock.data(), clock.size_bytes());
  w.put_bytes(waits.data(), waits.size_bytes());
  w.put_bytes(body.data(), body.size());
  return w.bytes();
}

inline Command unpacked(std::span<const std::byte> message) {
  Reader r(message);
  Command c{r.take<Header>(), {}, {}, {}};
  for (uint32_t i = 0; i < c.header.clock_entries; ++i) c.clock.push_back(r.take<uint32_t>());
  for (uint32_t i = 0; i < c.header.waits; ++i) c.waits.push_back(r.take<Ticket>());
  c.body.assign(r.rest().begin(), r.rest().end());
  return c;
}

}  // namespace vgpu
