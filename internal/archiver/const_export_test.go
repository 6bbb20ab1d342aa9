package archiver

// Rest is the rest of a service.
const Rest = rest
