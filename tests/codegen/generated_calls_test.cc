// Generated stubs and services at the two ends of a connection.

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "absl/strings/match.h"
#include "hawser/rpc/server.h"
#include "hawser/tests/testing/status_matchers.h"
#include "tests/codegen/testdata/inheritance.rpc.h"
#include "tests/codegen/testdata/types.rpc.h"

namespace {

using ::hawser::HasCode;
using ::hawser::IsOk;

namespace files = acme::files;
namespace types = acme::types;

class Connection {
 public:
  explicit Connection(hawser::Service* service) {
    absl::Status added = server_.AddService(service);
    if (!added.ok()) throw std::runtime_error(added.ToString());
    absl::StatusOr<std::string> uri = server_.Listen("tcp://127.0.0.1:0");
    if (!uri.ok()) throw std::runtime_error(uri.status().ToString());
    absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = hawser::Channel::Connect(*uri);
    if (!channel.ok()) throw std::runtime_error(channel.status().ToString());
    channel_ = *channel;
  }

  const std::shared_ptr<hawser::Channel>& channel() const { return channel_; }

 private:
  hawser::Server server_;
  std::shared_ptr<hawser::Channel> channel_;
};

class MemoryFile : public files::FileService {
 public:
  absl::Status Stat(hawser::ServerContext&, acme::base::Node::StatParams::Reader,
                    acme::base::Status::Builder reply) override {
    reply.setText(std::to_string(content_.size()));
    return absl::OkStatus();
  }
  absl::Status Write(hawser::ServerContext&, files::Writable::WriteParams::Reader request,
                     files::Writable::WriteResults::Builder) override {
    content_.assign(request.getBytes().asChars().begin(), request.getBytes().size());
    return absl::OkStatus();
  }

 private:
  std::string content_;
};

TEST(GeneratedCallsTest, ACallOfAnInheritedMethodReachesTheHandler) {
  MemoryFile service;
  Connection connection(&service);
  files::FileStub file(connection.channel());
  auto write = file.Write();
  write.request().setBytes(capnp::Data::Reader(reinterpret_cast<const kj::byte*>("tow"), 3));
  auto written = write.Send().Wait();
  ASSERT_THAT(written, IsOk());
  auto status = acme::base::NodeStub(file).Stat().Send().Wait();
  ASSERT_THAT(status, IsOk());
  EXPECT_STREQ((*status)->getText().cStr(), "3");
}

TEST(GeneratedCallsTest, AMethodThatIsNotOverriddenAnswersUnimplementedWithItsName) {
  MemoryFile service;
  Connection connection(&service);
  absl::Status status = files::FileStub(connection.channel()).Truncate().Send().Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnimplemented));
  EXPECT_TRUE(absl::StrContains(status.message(), "inheritance.capnp:File.truncate")) << status;
}

// Two methods of one name, each reached through the stub of its own interface.
class Both : public files::BothService {
 public:
  absl::Status Name(hawser::ServerContext&, acme::base::Named::NameParams::Reader,
                    acme::base::Named::NameResults::Builder reply) override {
    reply.setName("both");
    return absl::OkStatus();
  }
  absl::Status Name(hawser::ServerContext&, files::Peer::NameParams::Reader,
                    files::Peer::NameResults::Builder reply) override {
    reply.setPort(7470);
    return absl::OkStatus();
  }
};

TEST(GeneratedCallsTest, MethodsOfOneNameAreToldApart) {
  Both service;
  Connection connection(&service);
  files::BothStub both(connection.channel());
  auto name = acme::base::NamedStub(both).Name().Send().Wait();
  auto port = files::PeerStub(both).Name().Send().Wait();
  ASSERT_THAT(name, IsOk());
  ASSERT_THAT(port, IsOk());
  EXPECT_STREQ((*name)->getName().cStr(), "both");
  EXPECT_EQ((*port)->getPort(), 7470);
}

class Swapped : public types::EverythingService {
 public:
  absl::Status Map(hawser::ServerContext&, types::Map<capnp::Text, capnp::Data>::Reader request,
                   types::Map<capnp::Text, capnp::List<types::Tree>>::Builder reply) override {
    reply.initEntries(1)[0].setKey(request.getEntries()[0].getKey());
    return absl::OkStatus();
  }
};

TEST(GeneratedCallsTest, GenericStructsAreParametersAndResults) {
  Swapped service;
  Connection connection(&service);
  auto call = types::EverythingStub(connection.channel()).Map();
  call.request().initEntries(1)[0].setKey("tow");
  auto reply = call.Send().Wait();
  ASSERT_THAT(reply, IsOk());
  EXPECT_STREQ((*reply)->getEntries()[0].getKey().cStr(), "tow");
}

}  // namespace
