#include "hawser/tests/testing/test_fabric.h"

#include <stdio.h>
#include <stdlib.h>

#include <utility>
#include <vector>

#include "hawser/transport/fabrics.h"
#include "hawser/transport/uri.h"

namespace hawser {
namespace {

transport::Uri Parsed() {
  const char* const address = getenv("HAWSER_RDMA_ADDRESS");
  const std::string text = address != nullptr ? "rdma://" + std::string(address) + ":0" : "tcp://127.0.0.1:0";
  absl::StatusOr<transport::Uri> uri = transport::ParseUri(text);
  if (!uri.ok()) {
    fprintf(stderr, "HAWSER_RDMA_ADDRESS: %s\n", uri.status().ToString().c_str());
    exit(1);
  }
  return *std::move(uri);
}

}  // namespace

std::string TestScheme() { return Parsed().scheme; }

std::string TestHost() { return Parsed().host; }

std::string TestUri(uint16_t port) {
  transport::Uri uri = Parsed();
  uri.port = port;
  return uri.ToString();
}

bool OverSiw() {
  const char* const device = getenv("HAWSER_RDMA_DEVICE");
  return TestScheme() == "rdma" && device != nullptr && strncmp(device, "siw", 3) == 0;
}

std::string RefusedRead() { return OverSiw() ? "IBV_WC_WR_FLUSH_ERR" : "IBV_WC_REM_ACCESS_ERR"; }

std::shared_ptr<fabric::Fabric> NewTestFabric() {
  absl::StatusOr<std::shared_ptr<fabric::Fabric>> fabric = transport::CreateFabric(TestScheme());
  if (!fabric.ok()) {
    fprintf(stderr, "the fabric of the tests: %s\n", fabric.status().ToString().c_str());
    exit(1);
  }
  return *std::move(fabric);
}

SocketAddress TestAddress(uint16_t port) {
  transport::Uri uri = Parsed();
  uri.port = port;
  absl::StatusOr<std::vector<SocketAddress>> addresses = transport::Resolve(uri);
  if (!addresses.ok()) {
    fprintf(stderr, "HAWSER_RDMA_ADDRESS: %s\n", addresses.status().ToString().c_str());
    exit(1);
  }
  return addresses->front();
}

}  // namespace hawser
