// Machines on which librdmacm lists no device, or not the one that is wanted. It says ENODEV, whatever the
// reason.

#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/temporary_folder.h"
#include "hawser/tests/transport/fabric/fake_verbs.h"
#include "hawser/transport/fabric/verbs/fabric.h"

namespace hawser::fabric {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

class NoDeviceTest : public testing::Test {
 protected:
  NoDeviceTest() {
    for (const char* folder : {"/sys/class/infiniband", "/sys/class/infiniband_verbs", "/dev/infiniband"}) {
      std::filesystem::create_directories(root_ + folder);
    }
  }

  void Write(const std::string& path) { std::ofstream(root_ + path) << "\n"; }
  void Serve(const std::string& device, const std::string& uverbs) {
    const std::string folder = root_ + "/sys/class/infiniband_verbs/" + uverbs;
    std::filesystem::create_directory(folder);
    std::ofstream(folder + "/ibdev") << device << "\n";
  }

  absl::Status Open(bool others_are_listed = false) {
    FakeVerbs verbs({.root = root_});
    if (!others_are_listed) verbs.fail_once["rdma_get_devices"] = ENODEV;
    return NewVerbsFabric({.device = "rxe0", .library = &verbs.library()}).status();
  }

  const TemporaryFolder folder_;
  const std::string& root_ = folder_.path();
};

// What root may do although the file's mode forbids it, this thread may not.
class WithoutCapabilities {
 public:
  WithoutCapabilities() {
    syscall(SYS_capget, &header_, before_);
    __user_cap_data_struct none[2] = {before_[0], before_[1]};
    none[0].effective = none[1].effective = 0;
    syscall(SYS_capset, &header_, none);
  }
  ~WithoutCapabilities() { syscall(SYS_capset, &header_, before_); }

 private:
  __user_cap_header_struct header_ = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before_[2] = {};
};

TEST_F(NoDeviceTest, AMachineWithoutOneIsToldToUseTcp) {
  const absl::Status status = Open();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("open RDMA device rxe0"), HasSubstr("no RDMA device"), HasSubstr("tcp://")));
}

// librdmacm 44 lists the others, older ones list none.
class OneIsForbiddenTest : public NoDeviceTest, public testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(OthersAreListed, OneIsForbiddenTest, testing::Bool());

TEST_P(OneIsForbiddenTest, OneThatThisUserMayNotOpenIsNotSaidToBeMissing) {
  Write("/sys/class/infiniband/rxe0");
  Write("/sys/class/infiniband_verbs/abi_version");
  Serve("rxe0", "uverbs0");
  Write("/dev/infiniband/uverbs0");
  Serve("fake0", "uverbs1");
  chmod((root_ + "/dev/infiniband/uverbs0").c_str(), 0);
  const WithoutCapabilities user;
  const absl::Status status = Open(GetParam());
  EXPECT_THAT(status, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(Message(status), AllOf(HasSubstr("the kernel has rxe0, but rxe0 cannot be opened"),
                                     HasSubstr("open(/dev/infiniband/uverbs0)"), HasSubstr("EACCES"),
                                     HasSubstr("group"), HasSubstr("container"), HasSubstr("udev")));
}

TEST_F(NoDeviceTest, OneWhoseFileIsMissingIsAContainersPerhaps) {
  Write("/sys/class/infiniband/rxe0");
  Serve("rxe0", "uverbs0");
  const absl::Status status = Open();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(Message(status), AllOf(HasSubstr("open(/dev/infiniband/uverbs0)"), HasSubstr("container")));
}

TEST_F(NoDeviceTest, OneThatIsNotOfferedToProgramsNamesTheModule) {
  Write("/sys/class/infiniband/rxe0");
  const absl::Status status = Open();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(Message(status), AllOf(HasSubstr("the kernel has rxe0"), HasSubstr("modprobe ib_uverbs")));
}

TEST_F(NoDeviceTest, OneThatCanBeOpenedLacksAProvider) {
  Write("/sys/class/infiniband/rxe0");
  Serve("rxe0", "uverbs0");
  Write("/dev/infiniband/uverbs0");
  const absl::Status status = Open();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(Message(status), AllOf(HasSubstr("the kernel has rxe0"), HasSubstr("ibverbs-providers")));
}

}  // namespace
}  // namespace hawser::fabric
