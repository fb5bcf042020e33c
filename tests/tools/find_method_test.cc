// Names of methods as people type them.

#include <capnp/schema-loader.h>

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tools/hawser/schemas.h"
#include "tests/tools/inherited.capnp.h"

namespace hawser::tool {
namespace {

using inherited::Disk;
using inherited::Door;
using inherited::Machine;
using ::testing::HasSubstr;

class FindMethodTest : public ::testing::Test {
 protected:
  FindMethodTest() {
    const auto loader = std::make_unique<capnp::SchemaLoader>();
    loader->loadCompiledTypeAndDependencies<Machine>();
    for (const capnp::Schema& schema : loader->getAllLoaded()) {
      EXPECT_THAT(schemas_.Add(schema.getProto()), IsOk());
    }
    for (const uint64_t id : {capnp::typeId<Machine>(), capnp::typeId<Disk>(), capnp::typeId<Door>()}) {
      schemas_.Serve(id);
    }
    EXPECT_THAT(schemas_.Check(), IsOk());
  }

  // The interface that declares what is found.
  uint64_t DeclaringInterfaceOf(absl::string_view name) {
    const auto method = schemas_.FindMethod(name);
    EXPECT_THAT(method, IsOk()) << name;
    return method.ok() ? method->getContainingInterface().getProto().getId() : 0;
  }

  Schemas schemas_;
};

TEST_F(FindMethodTest, AnInheritedOneIsFoundByEitherInterface) {
  EXPECT_EQ(DeclaringInterfaceOf("Machine.spin"), capnp::typeId<Disk>());
  EXPECT_EQ(DeclaringInterfaceOf("inherited.capnp:Machine.spin"), capnp::typeId<Disk>());
  EXPECT_EQ(DeclaringInterfaceOf("Disk.spin"), capnp::typeId<Disk>());
  EXPECT_EQ(DeclaringInterfaceOf("spin"), capnp::typeId<Disk>());
}

TEST_F(FindMethodTest, TwoInheritedOnesOfOneNameAreToldApartByWhatDeclaresThem) {
  for (const char* name : {"open", "Machine.open", "inherited.capnp:Machine.open"}) {
    const absl::Status status = schemas_.FindMethod(name).status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument)) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("inherited.capnp:Disk.open")) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("inherited.capnp:Door.open")) << name;
  }
  EXPECT_EQ(DeclaringInterfaceOf("Disk.open"), capnp::typeId<Disk>());
  EXPECT_EQ(DeclaringInterfaceOf("inherited.capnp:Door.open"), capnp::typeId<Door>());
}

}  // namespace
}  // namespace hawser::tool
