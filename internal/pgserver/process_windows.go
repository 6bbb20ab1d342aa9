package pgserver

import (
	"os"
	"os/user"
	"syscall"
)

func attributes(*account) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

const noFollow = 0 // not supported by Windows

func (a *account) canWrite(os.FileInfo) bool { return false } // a server runs as the user of this process

func ownerOf(string) *user.User { return nil }
