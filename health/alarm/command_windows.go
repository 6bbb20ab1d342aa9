package alarm

import "os/exec"

// endWithChildren is of no avail here: only the command itself is ended.
func endWithChildren(*exec.Cmd) {}
