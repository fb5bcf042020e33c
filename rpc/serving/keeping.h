#ifndef HAWSER_RPC_SERVING_KEEPING_H_
#define HAWSER_RPC_SERVING_KEEPING_H_

#include <capnp/any.h>
#include <capnp/blob.h>
#include <capnp/message.h>

#include <cstdint>

#include "hawser/rpc/kept.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/wire/message.h"

// What a handler keeps of its request: in place if the memory of the request holds little else, otherwise in
// a copy. ServerContext documents both.
// Thread:   the one that has the request.
namespace hawser::internal {

// `pool`: what copies are from, and what `request` was received into.
KeptBytes KeepBytes(transport::IncomingMessage& request, transport::BufferPool& pool,
                    capnp::Data::Reader bytes);

// `value` is read from `request`; a struct of another message is copied. `limits`: those of its Reader.
// `steps`: that its call has taken for this so far, at first 0. All of them together are bounded by `limits`.
KeptStruct KeepStruct(transport::IncomingMessage& request, transport::BufferPool& pool,
                      const capnp::ReaderOptions& limits, uint64_t& steps, capnp::AnyStruct::Reader value);

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVING_KEEPING_H_
