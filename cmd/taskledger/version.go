package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version describes the build of this program.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // the checkout had uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// String returns the version as one line.
func (v version) String() string {
	revision := ""
	if v.Revision != "" {
		revision = fmt.Sprintf(" (%.12s)", v.Revision)
	}
	return fmt.Sprintf("taskledger %s%s %s %s", v.Version, revision, v.Go, v.Platform)
}

func readVersion() version {
	v := version{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
