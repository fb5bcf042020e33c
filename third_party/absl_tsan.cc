// Tells ThreadSanitizer what abseil's synchronization does. Linked into every program, and empty unless it
// is compiled with the sanitizer.
//
// The distribution's abseil is not compiled with the sanitizer, and absl::Mutex is made of atomics and
// futexes that the sanitizer cannot see from outside: without this file, everything that an absl::Mutex
// protects is reported as a race. Each function here replaces the library's for the whole program, calls the
// one it replaced, and says to the sanitizer "locked", "unlocked", "happened before". tests/absl_tsan_test.cc
// shows that it is needed and enough.

#if defined(__SANITIZE_THREAD__)

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <string>

#include "absl/base/config.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"

// The library drops the last reference to a Status by an atomic that cannot be seen, and frees it by a call
// that can. Likewise a spinlock protects the graph in which it looks for deadlocks, and memmove() moves that.
// OpenSSL's reference counts are such atomics, too.
extern "C" const char* __tsan_default_suppressions() {
  return "race:absl::*Status::Unref\n"
         "race:absl::*status_internal::Payload\n"
         "race:absl::*synchronization_internal::GraphCycles\n"
         "race:EVP_KEYMGMT_free\n";
}

namespace {

#define HAWSER_STRING(x) HAWSER_STRING_(x)
#define HAWSER_STRING_(x) #x

// The library's own function, by the part of its mangled name that follows absl's namespaces.
template <typename Function>
Function* Replaced(const char* name, const char* prefix = "_ZN4absl") {
  const std::string inline_namespace = HAWSER_STRING(ABSL_OPTION_INLINE_NAMESPACE_NAME);
  const std::string mangled = prefix + std::to_string(inline_namespace.size()) + inline_namespace + name;
  void* function = dlsym(RTLD_NEXT, mangled.c_str());
  if (function == nullptr) __builtin_trap();  // Another abseil than this file was written for.
  return reinterpret_cast<Function*>(function);
}

constexpr unsigned kWrite = 0;
constexpr unsigned kRead = __tsan_mutex_read_lock;

// Scopes, each around the one call that locks, unlocks, or gives the lock up and takes it again.
class Locking {
 public:
  Locking(absl::Mutex* mu, unsigned how) : mu_(mu), how_(how) { __tsan_mutex_pre_lock(mu_, how_); }
  ~Locking() { __tsan_mutex_post_lock(mu_, how_, 0); }

 private:
  absl::Mutex* mu_;
  unsigned how_;
};

class Unlocking {
 public:
  Unlocking(absl::Mutex* mu, unsigned how) : mu_(mu), how_(how) { __tsan_mutex_pre_unlock(mu_, how_); }
  ~Unlocking() { __tsan_mutex_post_unlock(mu_, how_); }

 private:
  absl::Mutex* mu_;
  unsigned how_;
};

// The lock is really held when either end of this is said, so no other thread can come in between. Says "for
// writing": waiting with a lock held for reading is not supported. abseil calls the condition in between,
// with the lock held. The sanitizer ignores what a thread reads while it locks, so this locks for the whole
// wait.
class Waiting {
 public:
  explicit Waiting(absl::Mutex* mu) : locking_(Unlocked(mu), kWrite) {}

 private:
  static absl::Mutex* Unlocked(absl::Mutex* mu) {
    Unlocking unlocking(mu, kWrite);
    return mu;
  }

  Locking locking_;
};

bool TryLocking(absl::Mutex* mu, unsigned how, bool (*try_lock)(absl::Mutex*)) {
  how |= __tsan_mutex_try_lock;
  __tsan_mutex_pre_lock(mu, how);
  const bool locked = try_lock(mu);
  __tsan_mutex_post_lock(mu, locked ? how : how | __tsan_mutex_try_lock_failed, 0);
  return locked;
}

// The flag that HasBeenNotified() reads inline stands right after the mutex.
void* Flag(const absl::Notification* notification) {
  return reinterpret_cast<char*>(const_cast<absl::Notification*>(notification)) + sizeof(absl::Mutex);
}

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

Mutex::~Mutex() {
  static auto* const replaced = Replaced<void(Mutex*)>("5MutexD1Ev");
  __tsan_mutex_destroy(this, 0);
  replaced(this);
}

void Mutex::Lock() {
  static auto* const replaced = Replaced<void(Mutex*)>("5Mutex4LockEv");
  Locking locking(this, kWrite);
  replaced(this);
}

void Mutex::Unlock() {
  static auto* const replaced = Replaced<void(Mutex*)>("5Mutex6UnlockEv");
  Unlocking unlocking(this, kWrite);
  replaced(this);
}

bool Mutex::TryLock() {
  static auto* const replaced = Replaced<bool(Mutex*)>("5Mutex7TryLockEv");
  return TryLocking(this, kWrite, replaced);
}

void Mutex::ReaderLock() {
  static auto* const replaced = Replaced<void(Mutex*)>("5Mutex10ReaderLockEv");
  Locking locking(this, kRead);
  replaced(this);
}

void Mutex::ReaderUnlock() {
  static auto* const replaced = Replaced<void(Mutex*)>("5Mutex12ReaderUnlockEv");
  Unlocking unlocking(this, kRead);
  replaced(this);
}

bool Mutex::ReaderTryLock() {
  static auto* const replaced = Replaced<bool(Mutex*)>("5Mutex13ReaderTryLockEv");
  return TryLocking(this, kRead, replaced);
}

void Mutex::LockWhen(const Condition& condition) {
  static auto* const replaced = Replaced<void(Mutex*, const Condition&)>("5Mutex8LockWhenERKNS0_9ConditionE");
  Locking locking(this, kWrite);
  replaced(this, condition);
}

void Mutex::ReaderLockWhen(const Condition& condition) {
  static auto* const replaced =
      Replaced<void(Mutex*, const Condition&)>("5Mutex14ReaderLockWhenERKNS0_9ConditionE");
  Locking locking(this, kRead);
  replaced(this, condition);
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, absl::Time deadline) {
  static auto* const replaced = Replaced<bool(Mutex*, const Condition&, absl::Time)>(
      "5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  Locking locking(this, kWrite);
  return replaced(this, condition, deadline);
}

bool Mutex::ReaderLockWhenWithDeadline(const Condition& condition, absl::Time deadline) {
  static auto* const replaced = Replaced<bool(Mutex*, const Condition&, absl::Time)>(
      "5Mutex26ReaderLockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  Locking locking(this, kRead);
  return replaced(this, condition, deadline);
}

// The library's ...WithTimeout call its ...WithDeadline, which are replaced: going there at once says things
// once.
bool Mutex::LockWhenWithTimeout(const Condition& condition, absl::Duration timeout) {
  return LockWhenWithDeadline(condition, absl::Now() + timeout);
}

bool Mutex::ReaderLockWhenWithTimeout(const Condition& condition, absl::Duration timeout) {
  return ReaderLockWhenWithDeadline(condition, absl::Now() + timeout);
}

void Mutex::Await(const Condition& condition) {
  static auto* const replaced = Replaced<void(Mutex*, const Condition&)>("5Mutex5AwaitERKNS0_9ConditionE");
  Waiting waiting(this);
  replaced(this, condition);
}

bool Mutex::AwaitWithDeadline(const Condition& condition, absl::Time deadline) {
  static auto* const replaced = Replaced<bool(Mutex*, const Condition&, absl::Time)>(
      "5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  Waiting waiting(this);
  return replaced(this, condition, deadline);
}

bool Mutex::AwaitWithTimeout(const Condition& condition, absl::Duration timeout) {
  return AwaitWithDeadline(condition, absl::Now() + timeout);
}

void CondVar::Wait(Mutex* mu) {
  static auto* const replaced = Replaced<void(CondVar*, Mutex*)>("7CondVar4WaitEPNS0_5MutexE");
  Waiting waiting(mu);
  replaced(this, mu);
}

bool CondVar::WaitWithDeadline(Mutex* mu, absl::Time deadline) {
  static auto* const replaced =
      Replaced<bool(CondVar*, Mutex*, absl::Time)>("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  Waiting waiting(mu);
  return replaced(this, mu, deadline);
}

bool CondVar::WaitWithTimeout(Mutex* mu, absl::Duration timeout) {
  return WaitWithDeadline(mu, absl::Now() + timeout);
}

void Notification::Notify() {
  static auto* const replaced = Replaced<void(Notification*)>("12Notification6NotifyEv");
  __tsan_release(Flag(this));
  replaced(this);
}

void Notification::WaitForNotification() const {
  static auto* const replaced =
      Replaced<void(const Notification*)>("12Notification19WaitForNotificationEv", "_ZNK4absl");
  replaced(this);
  __tsan_acquire(Flag(this));
}

bool Notification::WaitForNotificationWithTimeout(absl::Duration timeout) const {
  static auto* const replaced = Replaced<bool(const Notification*, absl::Duration)>(
      "12Notification30WaitForNotificationWithTimeoutENS0_8DurationE", "_ZNK4absl");
  const bool notified = replaced(this, timeout);
  if (notified) __tsan_acquire(Flag(this));
  return notified;
}

bool Notification::WaitForNotificationWithDeadline(absl::Time deadline) const {
  static auto* const replaced = Replaced<bool(const Notification*, absl::Time)>(
      "12Notification31WaitForNotificationWithDeadlineENS0_4TimeE", "_ZNK4absl");
  const bool notified = replaced(this, deadline);
  if (notified) __tsan_acquire(Flag(this));
  return notified;
}

bool BlockingCounter::DecrementCount() {
  static auto* const replaced = Replaced<bool(BlockingCounter*)>("15BlockingCounter14DecrementCountEv");
  __tsan_release(this);
  return replaced(this);
}

void BlockingCounter::Wait() {
  static auto* const replaced = Replaced<void(BlockingCounter*)>("15BlockingCounter4WaitEv");
  replaced(this);
  __tsan_acquire(this);
}

ABSL_NAMESPACE_END
}  // namespace absl

#endif  // __SANITIZE_THREAD__
