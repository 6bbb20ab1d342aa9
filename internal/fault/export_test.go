package fault

// Arm arms the points of a value of [Variable] with a given function.
var Arm = arm
