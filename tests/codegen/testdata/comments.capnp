@0xd7b3a90c5e48f216;
# What may stand in comments: the file has line ends of MS-DOS, and each comment below once continued into the code, ended early
# or drew a warning of the compiler.

interface Commented {
  # Reads from C:\ 

  blank @0 () -> ();
  # C:\ 

  tab @1 () -> ();
  # C:\	

  end @2 () -> ();
  # C:\

  trigraph @3 () -> ();
  # what??/

  carriageReturn @4 () -> ();
  # one#error two

  separators @5 () -> ();
  # one#error two#error three#error four #error five #error six

  direction @6 () -> ();
  # one ‮two⁦ three

  control @7 () -> ();
  # one [31mtwo

  notUtf8 @8 () -> ();
  # one � two �

  columns @9 () -> ();
  # a	b
}
