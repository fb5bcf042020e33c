# A store of images, and a gateway to it that also makes thumbnails.

@0xdb6e0c4a9fe10e70;

using Cxx = import "/capnp/c++.capnp";
using Hawser = import "/hawser/annotations.capnp";
$Cxx.namespace("images");

const nameBytesMax :UInt32 = 255;
# An image's name has 1 to so many bytes.

struct Bitmap {
  width @0 :UInt32;   # Pixels, 1 to 65536.
  height @1 :UInt32;  # Pixels, 1 to 65536.
  pixels @2 :Data;    # Rows from top to bottom, each from left to right; 3 bytes a pixel: red, green, blue.
}

interface ImageStore {
  # Each change has a version, one more than that of the change before it.
  #
  # put and remove are not idempotent: if they are resent after the connection was lost, they could undo a
  # change of another client in between. Their caller gets Unavailable and decides.

  put @0 (name :Text, image :Bitmap) -> (version :UInt64);
  # Replaces an image of that name. InvalidArgument: not a name, or not an image. ResourceExhausted: the store
  # is full.

  get @1 (name :Text) -> (image :Bitmap, version :UInt64) $Hawser.idempotent;
  # NotFound: there is no such image.

  list @2 (after :Text, limit :UInt32) -> (names :List(Text), more :Bool) $Hawser.idempotent;
  # A page of the names after `after`, in the order of their bytes. An empty `after` gives the first page.
  # `more`: the next page starts after the last of these names. A page has at most 1000 names, and at most
  # `limit` if that is not 0.

  remove @3 (name :Text) -> (version :UInt64);
  # NotFound: there is no such image.

  watch @4 () -> (version :UInt64) $Hawser.idempotent;
  # From now on the store pushes each change after `version` to the ImageWatcher that this client offers,
  # until the connection is lost. A client that has connected again watches again. FailedPrecondition: this
  # client offers no ImageWatcher. ResourceExhausted: the store has too many watchers.
}

interface ImageWatcher {
  # A client offers this service to the store.

  changed @0 (name :Text, version :UInt64) $Hawser.idempotent;
  # The image was put or removed. Versions ascend, but the store repeats a push whose answer was lost: ignore
  # a version that is not above the last one. The store sends the next push when this one is answered; until
  # then it merges all changes of one image. An empty name: the watcher was so slow that the store no longer
  # has the names of all changed images. List them.
}

interface Gateway {
  # Unavailable, DeadlineExceeded and ResourceExhausted of both methods may be the store's.

  image @0 (name :Text) -> (image :Bitmap) $Hawser.idempotent;
  # NotFound: there is no such image.

  thumbnail @1 (name :Text, width :UInt32) -> (image :Bitmap) $Hawser.idempotent;
  # The image, scaled down to `width` pixels, or as it is if it is not wider. NotFound: there is no such
  # image. InvalidArgument: `width` is 0. ResourceExhausted: too many thumbnails are being made.
}
