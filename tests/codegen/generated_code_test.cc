// The generated classes as a program sees them: the types are checked by the compiler, the tables of methods
// here.

#include <capnp/schema.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "hawser/rpc/call.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/service.h"
#include "tests/codegen/testdata/absolute_import.rpc.h"
#include "tests/codegen/testdata/aliases.rpc.h"
#include "tests/codegen/testdata/base.rpc.h"
#include "tests/codegen/testdata/data_only.rpc.h"
#include "tests/codegen/testdata/inheritance.rpc.h"
#include "tests/codegen/testdata/kv.rpc.h"
#include "tests/codegen/testdata/names.rpc.h"
#include "tests/codegen/testdata/types.rpc.h"

namespace {

using acme::kv::KeyValue;
using acme::kv::KeyValueService;
using acme::kv::KeyValueStub;

template <typename Stub>
const Stub& A();

// ---- Stubs.

static_assert(std::is_constructible_v<KeyValueStub, std::shared_ptr<hawser::Channel>>);
static_assert(std::is_copy_constructible_v<KeyValueStub>);
static_assert(std::is_same_v<decltype(A<KeyValueStub>().Get()),  //
                             hawser::Call<KeyValue::GetParams, KeyValue::GetResults>>);
static_assert(std::is_same_v<decltype(A<KeyValueStub>().Get({.timeout = absl::Seconds(1)})),
                             hawser::Call<KeyValue::GetParams, KeyValue::GetResults>>);
static_assert(std::is_same_v<decltype(A<KeyValueStub>().Set()),  //
                             hawser::Call<KeyValue::SetRequest, KeyValue::SetResults>>);

// Inherited methods, in a diamond and from another file, have the types of the interface that declares them.
namespace files = acme::files;
static_assert(std::is_same_v<decltype(A<files::FileStub>().Stat()),
                             hawser::Call<acme::base::Node::StatParams, acme::base::Status>>);
static_assert(std::is_same_v<decltype(A<files::FileStub>().Read()),
                             hawser::Call<files::Readable::ReadParams, files::Readable::ReadResults>>);
static_assert(std::is_convertible_v<files::FileStub, files::ReadableStub>);
static_assert(std::is_convertible_v<files::FileStub, acme::base::NodeStub>);
static_assert(!std::is_convertible_v<files::ReadableStub, files::FileStub>);

// A method of the interface itself goes before an inherited one of that name.
static_assert(std::is_same_v<decltype(A<files::RenamedStub>().Read()),
                             hawser::Call<files::Renamed::ReadParams, files::Renamed::ReadResults>>);

// Type parameters, bound or not.
using acme::types::Everything;
using acme::types::EverythingStub;
using acme::types::Map;
static_assert(std::is_same_v<
              decltype(A<EverythingStub>().Map()),
              hawser::Call<Map<capnp::Text, capnp::Data>, Map<capnp::Text, capnp::List<acme::types::Tree>>>>);
static_assert(std::is_same_v<decltype(A<EverythingStub>().Unbound()),
                             hawser::Call<Map<>, Map<capnp::AnyPointer, capnp::Text>>>);
static_assert(std::is_same_v<decltype(A<DirectoryStub>().Find()),
                             hawser::Call<Directory::FindParams, acme::base::Box<acme::base::Status>>>);

// C++ names from annotations, nested interfaces, keywords.
namespace names = acme::hawser::names;
static_assert(std::is_same_v<decltype(A<names::RenamedStub>().NewName()),
                             hawser::Call<names::Renamed::NewNameParams, names::Renamed::NewStruct>>);
static_assert(std::is_same_v<
              decltype(A<names::Outer_Middle_InnerStub>().Call()),
              hawser::Call<names::Outer::Middle::Inner::CallParams, names::Outer::Middle::Inner::Result>>);
static_assert(std::is_same_v<decltype(A<names::ServiceStub>().Delete()),
                             hawser::Call<names::Service::Namespace, names::Service::DeleteResults>>);

// ---- What a call says on the wire.

static_assert(KeyValueStub::kGet.interface_id == capnp::typeId<KeyValue>());
static_assert(KeyValueStub::kGet.ordinal == 0 && KeyValueStub::kGet.idempotent);
static_assert(KeyValueStub::kSet.ordinal == 2 && !KeyValueStub::kSet.idempotent);

TEST(GeneratedCodeTest, AMethodHasTheNameOfTheSchemaForPeople) {
  EXPECT_STREQ(KeyValueStub::kGet.name, "kv.capnp:KeyValue.get");
  EXPECT_STREQ(names::RenamedStub::kNewName.name, "names.capnp:Old.oldName");
  EXPECT_STREQ(names::Outer_Middle_InnerStub::kCall.name, "names.capnp:Outer.Middle.Inner.call");
}

// ---- Services.

static_assert(std::is_base_of_v<hawser::Service, KeyValueService>);
static_assert(
    std::is_convertible_v<files::FileService*, hawser::Service*>);  // One Service, though two paths.
static_assert(std::is_convertible_v<files::FileService*, acme::base::NodeService*>);

const hawser::MethodTable::Entry* Find(const hawser::MethodTable& table, const hawser::Method& method) {
  const hawser::MethodTable::Entry* entry = table.Find(method.interface_id, method.ordinal);
  EXPECT_EQ(entry != nullptr, !table.InterfaceName(method.interface_id).empty()) << method.name;
  return entry;
}

TEST(GeneratedCodeTest, AServiceAddsEachMethodOnItself) {
  KeyValueService service;
  hawser::MethodTable table;
  service.AddMethods(table);
  for (const hawser::Method* method :
       {&KeyValueStub::kGet, &KeyValueStub::kSet, &KeyValueStub::kList, &KeyValueStub::kClear}) {
    const hawser::MethodTable::Entry* entry = Find(table, *method);
    ASSERT_NE(entry, nullptr) << method->name;
    EXPECT_EQ(entry->method, method);
    EXPECT_EQ(entry->self, &service);
    EXPECT_NE(entry->handler, nullptr);
  }
}

TEST(GeneratedCodeTest, ADiamondHasTheSharedMethodsOnce) {
  files::FileService file;
  hawser::MethodTable table;
  file.AddMethods(table);
  EXPECT_EQ(table.conflict(), nullptr);
  EXPECT_NE(Find(table, files::FileStub::kTruncate), nullptr);
  EXPECT_NE(Find(table, files::ReadableStub::kRead), nullptr);
  EXPECT_NE(Find(table, files::WritableStub::kWrite), nullptr);
  const hawser::MethodTable::Entry* stat = Find(table, acme::base::NodeStub::kStat);
  ASSERT_NE(stat, nullptr);
  EXPECT_EQ(stat->self, static_cast<acme::base::NodeService*>(&file));
}

TEST(GeneratedCodeTest, MethodsOfOneNameAreDifferentMethods) {
  files::RenamedService renamed;
  hawser::MethodTable table;
  renamed.AddMethods(table);
  const hawser::MethodTable::Entry* own = Find(table, files::RenamedStub::kRead);
  const hawser::MethodTable::Entry* inherited = Find(table, files::ReadableStub::kRead);
  ASSERT_NE(own, nullptr);
  ASSERT_NE(inherited, nullptr);
  EXPECT_NE(own->handler, inherited->handler);
}

TEST(GeneratedCodeTest, TwoObjectsOfOneServiceAreAConflict) {
  KeyValueService one, two;
  hawser::MethodTable table;
  one.AddMethods(table);
  two.AddMethods(table);
  EXPECT_NE(table.conflict(), nullptr);
}

TEST(GeneratedCodeTest, AnInterfaceWithoutMethodsAddsNone) {
  names::MarkerService marker;
  hawser::MethodTable table;
  marker.AddMethods(table);
  EXPECT_TRUE(table.empty());
}

// A server may implement both methods of one name, whichever interface they are from.
class Both : public files::BothService {
 public:
  absl::Status Name(hawser::ServerContext&, acme::base::Named::NameParams::Reader,
                    acme::base::Named::NameResults::Builder) override {
    return absl::OkStatus();
  }
  absl::Status Name(hawser::ServerContext&, files::Peer::NameParams::Reader,
                    files::Peer::NameResults::Builder) override {
    return absl::OkStatus();
  }
};
static_assert(!std::is_abstract_v<Both>);

}  // namespace
