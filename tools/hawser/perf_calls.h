#ifndef HAWSER_TOOLS_HAWSER_PERF_CALLS_H_
#define HAWSER_TOOLS_HAWSER_PERF_CALLS_H_

#include <memory>

#include "hawser/rpc/call.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/hawser/perf.capnp.h"

// The methods of perf.capnp that a client of it calls.
namespace hawser::tool {

struct PerfStub {
  using Perf = perf::Perf;

  Call<Perf::LimitsParams, Perf::LimitsResults> Limits() const { return {channel, kLimits, {}}; }
  Call<Perf::EchoParams, Perf::EchoResults> Echo() const { return {channel, kEcho, {}}; }
  Call<Perf::PutParams, Perf::PutResults> Put() const { return {channel, kPut, {}}; }
  Call<Perf::GetParams, Perf::GetResults> Get() const { return {channel, kGet, {}}; }
  Call<Perf::OpenRawParams, Perf::OpenRawResults> OpenRaw() const { return {channel, kOpenRaw, {}}; }

  static constexpr Method kLimits = {capnp::typeId<Perf>(), 0, "perf.capnp:Perf.limits", true};
  static constexpr Method kEcho = {capnp::typeId<Perf>(), 1, "perf.capnp:Perf.echo", false};
  static constexpr Method kPut = {capnp::typeId<Perf>(), 2, "perf.capnp:Perf.put", false};
  static constexpr Method kGet = {capnp::typeId<Perf>(), 3, "perf.capnp:Perf.get", false};
  static constexpr Method kOpenRaw = {capnp::typeId<Perf>(), 4, "perf.capnp:Perf.openRaw", false};

  std::shared_ptr<Channel> channel;
};

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_PERF_CALLS_H_
