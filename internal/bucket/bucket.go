// Package bucket stores the objects of archives in S3-compatible object stores.
package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/taskledger/taskledger/internal/archive"
	"github.com/taskledger/taskledger/ledger"
)

// Scheme begins the name of a place in an object store: s3://BUCKET/PREFIX.
const Scheme = "s3://"

// defaultEndpoint is the address of AWS.
const defaultEndpoint = "https://s3.amazonaws.com"

// Bucket is an [archive.Store] in a bucket. It needs conditional writes (If-None-Match), and refuses to write to a
// server that ignores them.
type Bucket struct {
	client *minio.Client
	bucket string
	prefix string // empty, or with a slash at its end

	probe func(context.Context) error // once
}

// Open returns the bucket at a place such as s3://BUCKET/PREFIX. It reads the variables of AWS: AWS_ENDPOINT_URL_S3 or
// AWS_ENDPOINT_URL for other servers, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, then
// the credentials file of AWS, then the role of the machine. It does not connect.
//
// Errors: [*ledger.InvalidError].
func Open(place string, getenv func(string) string) (*Bucket, error) {
	name, prefix, _ := strings.Cut(strings.TrimPrefix(place, Scheme), "/")
	prefix = strings.Trim(prefix, "/")
	if prefix != "" && !fs.ValidPath(prefix) || name == "" || !strings.HasPrefix(place, Scheme) {
		return nil, &ledger.InvalidError{Field: "place", Value: place, Rule: "must be " + Scheme + "BUCKET/PREFIX"}
	}
	if prefix != "" {
		prefix += "/"
	}
	endpoint := defaultEndpoint
	for _, variable := range []string{"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} {
		if value := getenv(variable); value != "" {
			endpoint = value
		}
	}
	address, err := url.Parse(endpoint)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return nil, &ledger.InvalidError{Field: "AWS_ENDPOINT_URL", Value: endpoint,
			Rule: "must be a URL of http or https"}
	}
	client, err := minio.New(address.Host, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{},
			&credentials.IAM{Client: &http.Client{Timeout: 5 * time.Second}},
		}),
		Secure: address.Scheme == "https", Region: getenv("AWS_REGION"),
	})
	if err != nil {
		return nil, &ledger.InvalidError{Field: "place", Value: place, Rule: err.Error()}
	}
	b := &Bucket{client: client, bucket: name, prefix: prefix}
	b.probe = b.onceConditional()
	return b, nil
}

// String returns the place.
func (b *Bucket) String() string { return Scheme + b.bucket + "/" + b.prefix }

// onceConditional returns a function that checks once whether the server keeps an object that exists.
func (b *Bucket) onceConditional() func(context.Context) error {
	var mu sync.Mutex
	var isChecked bool
	return func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if isChecked {
			return nil
		}
		name := "probe-" + rand.Text()
		if err := b.put(ctx, name, []byte("probe"), true); err != nil {
			return err
		}
		err := b.put(ctx, name, []byte("probe"), true)
		if deleting := b.Delete(ctx, name); deleting != nil {
			return deleting
		}
		switch {
		case errors.Is(err, archive.ErrExists):
			isChecked = true
			return nil
		case err == nil:
			return fmt.Errorf("%s: the server ignores If-None-Match, so two writers could overwrite each other: use "+
				"a server with conditional writes", b)
		}
		return err
	}
}

// Put implements [archive.Store].
func (b *Bucket) Put(ctx context.Context, name string, data []byte) error {
	if err := b.probe(ctx); err != nil {
		return err
	}
	return b.put(ctx, name, data, true)
}

// Replace implements [archive.Store].
func (b *Bucket) Replace(ctx context.Context, name string, data []byte) error {
	return b.put(ctx, name, data, false)
}

// conflicts is how often a write is tried while another write of the object is under way.
const conflicts = 5

func (b *Bucket) put(ctx context.Context, name string, data []byte, isNew bool) error {
	o := minio.PutObjectOptions{ContentType: "application/octet-stream", DisableMultipart: true}
	if isNew {
		o.SetMatchETagExcept("*")
	}
	for try := 1; ; try++ {
		_, err := b.client.PutObject(ctx, b.bucket, b.prefix+name, bytes.NewReader(data), int64(len(data)), o)
		status := minio.ToErrorResponse(err).StatusCode
		if isNew && status == http.StatusConflict && try < conflicts {
			continue
		}
		if isNew && status == http.StatusPreconditionFailed {
			return fmt.Errorf("%s%s: %w", b, name, archive.ErrExists)
		}
		return b.explain(name, err)
	}
}

// explain adds the name of the object.
func (b *Bucket) explain(name string, err error) error {
	if err == nil {
		return nil
	}
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return fmt.Errorf("%s%s: %w", b, name, err)
}

// Get implements [archive.Store].
func (b *Bucket) Get(ctx context.Context, name string, offset, length int64) ([]byte, error) {
	var o minio.GetObjectOptions
	switch {
	case length == 0:
		return nil, nil
	case length > 0:
		if err := o.SetRange(offset, offset+length-1); err != nil {
			return nil, err
		}
	case offset > 0:
		if err := o.SetRange(offset, 0); err != nil {
			return nil, err
		}
	}
	object, err := b.client.GetObject(ctx, b.bucket, b.prefix+name, o)
	if err != nil {
		return nil, b.explain(name, err)
	}
	data, err := io.ReadAll(object)
	if minio.ToErrorResponse(err).StatusCode == http.StatusRequestedRangeNotSatisfiable {
		err = nil // the object ends before the offset
	}
	_ = object.Close() // it was read
	return data, b.explain(name, err)
}

// List implements [archive.Store].
func (b *Bucket) List(ctx context.Context, prefix string) (names []string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o := minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}
	for object := range b.client.ListObjects(ctx, b.bucket, o) {
		if object.Err != nil {
			return nil, b.explain(prefix, object.Err)
		}
		names = append(names, strings.TrimPrefix(object.Key, b.prefix))
	}
	slices.Sort(names)
	return names, nil
}

// Delete implements [archive.Store].
func (b *Bucket) Delete(ctx context.Context, name string) error {
	err := b.client.RemoveObject(ctx, b.bucket, b.prefix+name, minio.RemoveObjectOptions{})
	return b.explain(name, err)
}
