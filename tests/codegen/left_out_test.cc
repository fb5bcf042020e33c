// Schemas with interfaces that Hawser cannot serve: what is left of them is whole.

#include <capnp/message.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "hawser/rpc/service.h"
#include "tests/codegen/testdata/left_out/mixed.rpc.h"
#include "tests/codegen/testdata/refused/capability_mutual.capnp.h"
#include "tests/codegen/testdata/refused/generic_interface.capnp.h"

namespace acme::mixed {
// Declared by nothing else: these names are free.
struct NewsStub {};
struct NewsService {};
struct VillageStub {};
struct Store_InnerStub {};
}  // namespace acme::mixed

namespace {

TEST(LeftOutTest, TheInterfacesThatCanBeServedAreThere) {
  EXPECT_TRUE((std::is_convertible_v<acme::mixed::News_ArchiveStub, acme::mixed::StoreStub>));
  EXPECT_TRUE((std::is_base_of_v<acme::mixed::StoreService, acme::mixed::News_ArchiveService>));
  EXPECT_STREQ(acme::mixed::News_ArchiveStub::kDay.name, "mixed.capnp:News.Archive.day");
  acme::mixed::News_ArchiveService archive;
  hawser::MethodTable table;
  archive.AddMethods(table);
  EXPECT_EQ(table.conflict(), nullptr);
  EXPECT_FALSE(table.empty());
}

TEST(LeftOutTest, AllStructsAreThere) {
  capnp::MallocMessageBuilder message;
  auto item = message.initRoot<acme::mixed::Item>();
  item.setName("a");
  EXPECT_FALSE(item.hasOwner());
  EXPECT_TRUE((std::is_class_v<acme::mixed::TakenStub::Builder>));
}

TEST(LeftOutTest, ALibraryOfStructsOnlyTakesAnyInterface) {
  capnp::MallocMessageBuilder message;
  auto box = message.initRoot<Box<capnp::Text>>();
  box.setValue("a");
  EXPECT_EQ(box.asReader().getValue(), "a");
  EXPECT_TRUE((std::is_class_v<Store<capnp::Text>::GetResults::Reader>));
}

}  // namespace
