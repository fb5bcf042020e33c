@0xa6d20b7f41c8e395;
# No interface of it can be served.

interface Registry {
  get @0 () -> (registry :Registry);
}
