// Command pack turns the binaries of a release into what users install: an archive for each platform, a container image
// as an OCI layout, a formula of Homebrew, and SHA256SUMS of all files. The same binaries give the same bytes.
//
//	go run ./pack -version v1.2.3 -time 2026-01-31T00:00:00Z DIR
//
// DIR contains the binaries taskledger-VERSION-OS-ARCH, with .exe for Windows, and their SBOMs.
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// release is a version with its binaries.
type release struct {
	version string
	time    time.Time // of the commit
	dir     string
	files   string // directory of LICENSE and README.md
}

// binary is the program for a platform.
type binary struct {
	system, arch string
	path         string
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("pack: ")
	r := release{}
	flag.StringVar(&r.version, "version", "", "`version` of the release")
	flag.StringVar(&r.files, "files", "..", "`directory` of LICENSE and README.md")
	at := flag.String("time", "", "`time` of the commit, RFC 3339: the time of all files")
	flag.Parse()
	var err error
	if r.time, err = time.Parse(time.RFC3339, *at); err != nil {
		log.Fatalf("-time: %v", err)
	}
	if r.version == "" || flag.NArg() != 1 {
		log.Fatal("usage: pack -version VERSION -time TIME DIR")
	}
	r.dir, r.time = flag.Arg(0), r.time.UTC()
	if err := r.pack(); err != nil {
		log.Fatal(err)
	}
}

func (r release) pack() error {
	binaries, err := r.binaries()
	if err != nil {
		return err
	}
	for _, b := range binaries {
		if err := r.archive(b); err != nil {
			return fmt.Errorf("archive of %s/%s: %w", b.system, b.arch, err)
		}
	}
	if err := r.image(binaries); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := r.formula(binaries); err != nil {
		return fmt.Errorf("formula: %w", err)
	}
	return r.sums()
}

// binaries returns the binaries of the version, in the order of their names.
func (r release) binaries() (all []binary, err error) {
	names, err := filepath.Glob(filepath.Join(r.dir, "taskledger-"+r.version+"-*"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		platform := strings.TrimPrefix(filepath.Base(name), "taskledger-"+r.version+"-")
		system, arch, isPlatform := strings.Cut(strings.TrimSuffix(platform, ".exe"), "-")
		if isPlatform && !strings.ContainsAny(arch, ".-") {
			all = append(all, binary{system: system, arch: arch, path: name})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s contains no binary of %s", r.dir, r.version)
	}
	return all, nil
}

// sums writes SHA256SUMS of all files.
func (r release) sums() error {
	var text strings.Builder
	names, err := filepath.Glob(filepath.Join(r.dir, "taskledger*"))
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(slices.Values(names)) {
		sum, err := sumOf(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, filepath.Base(name))
	}
	return os.WriteFile(filepath.Join(r.dir, "SHA256SUMS"), []byte(text.String()), 0o644)
}

func sumOf(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	return fmt.Sprintf("%x", h.Sum(nil)), errors.Join(err, f.Close())
}
