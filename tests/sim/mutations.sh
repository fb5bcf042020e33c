#!/usr/bin/env bash
# Checks that the seeds find bugs. Puts one mistake at a time into transport/ or rpc/, runs the seeds of that
# layer, and prints the first finding.
#
#   tests/sim/mutations.sh [option of bazel]...
#   tests/sim/mutations.sh --check                 # only checks that each mistake still fits the code
#
# Works on the files of this checkout, so these folders must have no changes. It restores the files after each
# mistake. Exit status 1 if a mistake was not caught, or does not fit.
set -euo pipefail
cd "$(dirname "$0")/../.."
check=
if [[ ${1-} == --check ]]; then
  check=1
else
  git diff --quiet -- base transport rpc || { echo 'mutations.sh: commit or stash your changes first' >&2 && exit 2; }
  trap 'git checkout --quiet -- base transport rpc' EXIT
fi
bazel=${BAZEL:-./bazelw}
missed=0

# mutation <name> <file> <text> <replacement>: the text must occur exactly once.
mutation() {
  local name=$1 file=$2 text=$3 replacement=$4 seeds=exchange_seeds log
  if [[ $check ]]; then
    TEXT=$text perl -0ne 'my $count = () = /\Q$ENV{TEXT}\E/g; exit($count != 1)' "$file" && return
    echo "mutations.sh: '$name' does not fit $file: its text is there not once" >&2
    missed=1
    return
  fi
  [[ $file != rpc/* && $file != transport/proof* ]] || seeds=rpc_seeds
  log=$(mktemp)
  TEXT=$text REPLACEMENT=$replacement perl -0pi -e '
    my $count = s/\Q$ENV{TEXT}\E/$ENV{REPLACEMENT}/g;
    die "mutations.sh: the text is there " . ($count || 0) . " times in $ARGV\n" if $count != 1;' "$file"
  if ! $bazel build "${options[@]}" "//tests/sim:$seeds" >"$log" 2>&1; then
    tail "$log" >&2
    exit 2
  fi
  # "|| exit 1" keeps the shell from reporting a crash.
  if (timeout 300 "bazel-bin/tests/sim/$seeds" --seeds=1500 --steps=300 || exit 1) >"$log" 2>&1; then
    printf '%-48s NOT CAUGHT\n' "$name"
    missed=1
  else
    printf '%-48s %s\n' "$name" "$(grep -Eavm 1 '^hawser: (the connection|error:)' "$log" | cut -c 1-140)"  # Without the log's lines.
  fi
  rm -f "$log"
  git checkout --quiet -- base transport rpc
}
options=("$@")

mutation 'flushed work is not waited for' transport/connection.cc \
  'send_queue_.outstanding() != 0 || receive_ring_.posted() != 0 ||
      inbounds_.has_taken() || (outbounds_.revokes() && queue_pair_ != nullptr)' 'false'
mutation 'receives are posted again when there are none' transport/connection.cc \
  'if (ready_ && receive_ring_.wants_refill(answers) &&' 'if (ready_ && receive_ring_.posted() == 0 &&'
mutation 'fewer receives wait than messages may come' transport/receive_ring.h \
  'may_come : posted_min_);' 'may_come : posted_min_) - std::min(posted(), 4u);'
mutation 'credits are given before their receives are posted' transport/credits.cc \
  'if (ring_.Allow(wanted_)) Give();' 'Give();'
mutation 'credits that are not used are never returned' transport/requester.cc \
  'count > 0; --count) control_.ReturnCredit();' 'count > UINT32_MAX - 1; --count) control_.ReturnCredit();'
mutation 'a return is posted again' transport/credits.cc \
  '  ring_.Allow(limit_);' ''
mutation 'a large answer is never released' transport/requester.cc \
  '  OweRelease(slot);
  Deliver(slot, Event::kRead' '  Deliver(slot, Event::kRead'
mutation 'a SEND names the memory of an earlier READ' transport/send_queue.cc \
  'request.opcode = fabric::Opcode::kSend;' \
  'request.opcode = fabric::Opcode::kSend; request.rkey = entry.rkey;'
mutation 'the sink of a READ is returned at the deadline' transport/inbound.cc \
  '  if (inbound.outstanding_ != 0) return false;' ''
mutation 'a slot is free at the deadline' transport/requester.cc \
  'if (receives && inbounds_.Stop(slot.response)) {' 'if (!receives || inbounds_.Stop(slot.response)) {'
mutation 'a message goes before its grants are revoked' transport/outbound.cc \
  '  Move(Event::kRevoke);' '  Move(Event::kRevoke);
  message_.reset();'
mutation 'a message goes with the first of its grants' transport/outbound.cc \
  '  if (--all_[index]->grants_left_ != 0) return;' '  all_[index]->message_.reset();
  if (--all_[index]->grants_left_ != 0) return;'
mutation 'a message goes before its SEND is proved' transport/outbound.cc \
  'if (rkeys_.empty()) return Move(Event::kRelease);' 'if (rkeys_.empty()) return message_.reset(), Move(Event::kRelease);'
mutation 'the budget of READs is not given back' transport/inbound.cc \
  '  share_.Return(bytes);
  Pump();' '  Pump();'
mutation 'a message is whole before its last READ' transport/inbound.cc \
  'if (inbound.outstanding_ == 0 && inbound.exhausted()) End(inbound);' 'if (inbound.exhausted()) End(inbound);'
mutation 'silence is not asked about' transport/keepalive.cc 'control_.Ping();' ''
mutation 'READs that stand still are waited for' transport/keepalive.cc \
  'since_ns != kNever) {' 'since_ns != kNever && since_ns < 0) {'
mutation 'deadlines are not kept' transport/requester.cc 'if (slot.deadline_ns <= now_ns) {' 'if (slot.deadline_ns < 0 && now_ns > 0) {'
mutation 'connecting has no end' transport/connection.cc \
  'poller.timers().Set(connection->connect_timer_, After(poller.environment().NowNs(), connect_timeout));' '(void)connect_timeout;'
mutation 'a connection that failed is not disconnected' transport/connection.cc \
  '  } else {
    queue_pair_->Disconnect();
  }
  AwaitFlush();' '  }
  AwaitFlush();'
mutation 'the send queue is never proved' transport/send_queue.cc \
  'if (++sends_since_signal_ >= signal_interval_) {' 'if (sends_since_signal_ == UINT32_MAX) {'

mutation 'a call that was sent is sent again' rpc/internal/untyped_call.cc \
  'request_comes_back_ = method_.idempotent;' 'request_comes_back_ = true;'
mutation 'what has run is said to be not sent' rpc/internal/untyped_call.cc \
  'if (resends_ == 0) was_sent_ = false;' 'was_sent_ = false;'
mutation 'a handler does not hear of a cancel' rpc/internal/serving_connection.cc \
  '  AnswerFor(*call, why);
  call->Cancel();' '  AnswerFor(*call, why);'
mutation 'the reverse connection outlives the forward one' rpc/internal/link.cc \
  '  observer_->OnLinkDown(*this, why);
  Close(why);' '  observer_->OnLinkDown(*this, why);'
mutation 'a reverse connection that ends is not counted' rpc/internal/server_clients.cc \
  'void ServerCore::OnReverseGone(const Admission::Place& place) { ReleaseConnection(place); }' \
  'void ServerCore::OnReverseGone(const Admission::Place&) {}'
mutation 'a channel tries to connect only once' rpc/internal/channel_core.cc \
  '    call->EndSoon(call->Error(CodeWhileNotConnected(), why_failed_.message()));
  }
  ConnectLater();' '    call->EndSoon(call->Error(CodeWhileNotConnected(), why_failed_.message()));
  }'
mutation 'a call does not go over to the next connection' rpc/internal/channel_core.cc \
  'if (absl::IsUnavailable(id.status()) && (link_ == nullptr || !link_->CanSend())) return false;' ''
mutation 'a slot that is free wakes no call' rpc/internal/channel_core.cc \
  'if (&link == link_.get()) Pump();' '(void)link;'
mutation 'a queued call has no deadline' rpc/internal/call_queue.cc \
  'poller_.timers().Set(timer_, call.deadline_ns_);' ''
mutation 'a proof has the identity of another one' transport/proof.cc \
  '.identity = std::move(claim.identity)' '.identity = entries_.begin()->second.claim.identity'
mutation 'a proof is good twice' transport/proof.cc \
  'if (std::exchange(found->second.used, true)) {' 'if (std::exchange(found->second.used, false)) {'
mutation 'a proof without its key is believed' transport/proof.cc \
  '  if (!tls::EqualSecretly(data.substr(kHandshakeBytes, kConnectCodeBytes), View(code, kConnectCodeBytes))) {' \
  '  if (!tls::EqualSecretly(data.substr(kHandshakeBytes, 0), View(code, 0))) {'
exit $missed
