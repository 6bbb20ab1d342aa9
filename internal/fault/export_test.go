package fault

// Arm reads a value of [Variable] with another end than the process's.
var Arm = arm
