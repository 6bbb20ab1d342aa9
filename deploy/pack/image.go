package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is the user and the group of the image's process, which have no rights on the host.
const imageUser = 65532

// image writes the image of Linux's binaries as an OCI layout, taskledger-VERSION-image.tar. It contains the program,
// the CAs of Mozilla, and the directory of the data. The layout also has the manifest.json of docker save: without it,
// docker load reads the layout only if Docker keeps images in containerd, its default since version 29.
func (r release) image(binaries []binary) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var saved []savedImage
	for _, b := range binaries {
		if b.system != "linux" {
			continue
		}
		img, err := r.imageOf(b)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: b.system, Architecture: b.arch},
		}})
		s, err := r.savedImage(b, img)
		if err != nil {
			return err
		}
		saved = append(saved, s)
	}
	dir, err := os.MkdirTemp(r.dir, "image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	outer := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{
		// Docker and Podman name the image after the first, skopeo and others after the second.
		Annotations: map[string]string{
			"io.containerd.image.name":          "docker.io/library/taskledger:" + r.tag(),
			"org.opencontainers.image.ref.name": r.tag(),
		},
	}})
	if _, err := layout.Write(dir, outer); err != nil {
		return err
	}
	text, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o644); err != nil {
		return err
	}
	return r.tarDir(dir, filepath.Join(r.dir, "taskledger-"+r.version+"-image.tar"))
}

// tag returns the version as the tag of an image, which has no plus sign.
func (r release) tag() string { return strings.ReplaceAll(r.version, "+", "_") }

// savedImage is an image in manifest.json.
type savedImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// savedImage returns the entry of an image in manifest.json. It has no list of platforms, so the tag of all but amd64
// ends with the architecture.
func (r release) savedImage(b binary, img v1.Image) (savedImage, error) {
	path := func(digest v1.Hash) string { return "blobs/" + digest.Algorithm + "/" + digest.Hex }
	manifest, err := img.Manifest()
	if err != nil {
		return savedImage{}, err
	}
	tag := "taskledger:" + r.tag()
	if b.arch != "amd64" {
		tag += "-" + b.arch
	}
	s := savedImage{Config: path(manifest.Config.Digest), RepoTags: []string{tag}}
	for _, l := range manifest.Layers {
		s.Layers = append(s.Layers, path(l.Digest))
	}
	return s, nil
}

// imageOf returns the image for a platform.
func (r release) imageOf(b binary) (v1.Image, error) {
	program, err := os.ReadFile(b.path)
	if err != nil {
		return nil, err
	}
	base, err := r.layer(
		entry{name: "data/", mode: 0o755},
		entry{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: authorities()},
	)
	if err != nil {
		return nil, err
	}
	top, err := r.layer(entry{name: "taskledger", mode: 0o755, data: program})
	if err != nil {
		return nil, err
	}
	img := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	if img, err = mutate.AppendLayers(img, base, top); err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = b.system, b.arch, v1.Time{Time: r.time}
	config.Config = v1.Config{
		User:         "65532:65532",
		Env:          []string{"TASKLEDGER_DATA=/data", "TASKLEDGER_LOG_FORMAT=json"},
		Entrypoint:   []string{"/taskledger"},
		Cmd:          []string{"serve", "--listen", ":8080"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}, "4222/tcp": {}},
		Volumes:      map[string]struct{}{"/data": {}},
		Healthcheck: &v1.HealthConfig{
			Test: []string{"CMD", "/taskledger", "serve", "--check", "--listen", ":8080"}, Interval: 10 * time.Second,
			Timeout: 10 * time.Second, StartPeriod: 30 * time.Second, Retries: 3,
		},
		Labels: map[string]string{
			"org.opencontainers.image.source":   "https://github.com/taskledger/taskledger",
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(img, config)
}

func (r release) layer(entries ...entry) (v1.Layer, error) {
	var files bytes.Buffer
	if err := tarred(&files, entries, r.time); err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil }
	return tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer))
}

// authorities returns the CAs of Mozilla that have no restriction, as PEM.
func authorities() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes all
		}
	}
	return text.Bytes()
}

// tarDir writes the files of a directory as an archive.
func (r release) tarDir(dir, archive string) error {
	var entries []entry
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		entries = append(entries, entry{name: filepath.ToSlash(relative), mode: 0o644, data: data})
		return err
	})
	if err != nil {
		return err
	}
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	return errors.Join(tarred(out, entries, r.time), out.Close())
}
