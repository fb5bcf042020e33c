#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_CM_HANDSHAKE_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_CM_HANDSHAKE_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/base/socket_address.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/endpoint.h"
#include "hawser/transport/fabric/verbs/event_channel.h"
#include "hawser/transport/fabric/verbs/options.h"

namespace hawser::fabric {

// How one queue pair becomes a connection: its rdma_cm_id, and what this side and the peer say to each other
// by the connection manager, up to the end. The states are those of VerbsQueuePairState.
//
//   the side that connects                               the side that accepts
//   Connect(): resolves the address, then the route
//   creates the ibv_qp                                   Accept(): creates the ibv_qp
//   Continue(): rdma_connect() --- request ------------>
//                                                        Continue(): moves the ibv_qp to RTS, rdma_accept()
//                              <------------ response ---
//   moves the ibv_qp to RTS, rdma_establish() --- ready to use ---> ESTABLISHED, or the peer's first message
//
// Over iWARP the device moves the ibv_qp, and reports ESTABLISHED to both sides. What takes long are commands
// of the control thread, see VerbsDeviceQp.
//
// The port to connect from is one of TCP there, and the connection manager chooses it without asking TCP. If
// another socket has it, rdma_connect() fails, and the handshake begins again with another rdma_cm_id, in
// kConnecting: the ibv_qp and its receives stay.
// Thread:   that of the queue pair.
// Failure:  FailHandshake() of the VerbsEndpoint, or Fail() if no peer waits for an answer.
class VerbsCmHandshake {
 public:
  // `from`: QueuePairOptions::local_address.
  VerbsCmHandshake(VerbsEndpoint& endpoint, const VerbsFabricOptions& fabric, const SocketAddress& from);

  // As those of QueuePair.
  absl::Status Connect(const SocketAddress& address, absl::string_view private_data);
  absl::Status Accept(ConnectRequest& request, absl::string_view private_data);

  // After OnCreated() of the VerbsEndpoint: the receives of the queue pair are posted.
  void Continue();

  // An event of the rdma_cm_id; not after the end was reported.
  void OnCmEvent(const VerbsCmEvent& event);
  // IBV_EVENT_COMM_EST: data has arrived before the end of the handshake.
  void OnPeerSpoke();
  // A message of the peer has arrived in kAnswering: it has the answer. The result of the command comes
  // later.
  void OnAnswerArrived() { endpoint_.Move(VerbsEndpoint::Event::kAnswered); }

  bool was_established() const { return was_established_; }
  // The peer has asked to connect, and this side has not answered.
  bool AwaitsAnswer() const { return accepted_ && !was_established_ && !endpoint_.device_qp().answered(); }
  // "accept 10.0.0.1:7470": begins the text of an error.
  std::string Accepting() const;

  // The peer can get an answer still, by Reject().
  bool MayReject() const;
  void Reject(std::string reason);
  // Ends the connection, or the handshake.
  void Disconnect();
  // Null: there is none. The caller has the control thread destroy it.
  rdma_cm_id* TakeId() { return std::exchange(id_, nullptr); }

 private:
  std::string ConnectingTo() const;
  // Resolves the address for the new `id_`.
  void Resolve();
  bool IsResolving() const;
  // False: it failed.
  bool SetTrafficClass();
  void OnAddressResolved();
  void OnRouteResolved();
  void OnCreated(const absl::Status& result);
  void AskToConnect();
  void OnAskedToConnect(const absl::Status& result);
  void ConnectFromAnotherPort();
  void LeaveConnectThread();
  rdma_conn_param ConnectionParameters() const;
  void OnConnectResponse(const VerbsCmEvent& event);
  void OnReadyToSend(const absl::Status& result, const VerbsCmEvent& response);
  void Establish(const VerbsCmEvent& event);
  void Answer();
  void OnAnswered(const absl::Status& result);

  VerbsEndpoint& endpoint_;
  VerbsDevice& device_;
  const VerbsFabricOptions& fabric_;
  const SocketAddress from_;
  rdma_cm_id* id_ = nullptr;  // Until the command that destroys it is given.
  std::string private_data_;  // For rdma_connect() or rdma_accept().
  bool accepted_ = false;     // By Accept(), rather than by the peer.
  bool was_established_ = false;
  bool connect_returned_ = false;  // rdma_connect()
  bool resolves_again_ = false;    // After ConnectFromAnotherPort().
  int ports_tried_ = 1;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_CM_HANDSHAKE_H_
