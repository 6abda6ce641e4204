// A Kafka client with franz-go, driven by the commands that tests/compat/kafka/programs/client.py describes.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

const (
	guard     = 150 * time.Second
	pollTime  = 100 * time.Millisecond
	fromStart = -2
)

type settings struct {
	Servers    string `json:"servers"`
	User       string `json:"user"`
	Password   string `json:"password"`
	CA         string `json:"ca"`
	Group      string `json:"group"`
	AutoCommit bool   `json:"autoCommit"`
	Instance   string `json:"instance"`
	Assignor   string `json:"assignor"`
	Reset      string `json:"reset"`
	Codec      string `json:"codec"`
	SessionS   int    `json:"sessionS"`
	LingerMs   int    `json:"lingerMs"`
}

// The elements of places and records are of several types, so they are read when their command is known.
type command struct {
	Do      string              `json:"do"`
	Topic   string              `json:"topic"`
	Topics  []string            `json:"topics"`
	Seconds int                 `json:"seconds"`
	Records [][]json.RawMessage `json:"records"`
	Places  [][]json.RawMessage `json:"places"`
	Place   []json.RawMessage   `json:"place"`
}

type place struct {
	topic     string
	partition int32
	offset    int64 // or milliseconds; 0 if the command has none
}

type client struct {
	settings settings
	producer *kgo.Client
	consumer *kgo.Client
	lock     sync.Mutex
	assigned map[place]bool
	said     string
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	var ours settings
	if !lines.Scan() {
		return
	}
	check(json.Unmarshal(lines.Bytes(), &ours))
	c := &client{settings: ours, assigned: map[place]bool{}}
	say(map[string]any{"done": "open"})
	commands := make(chan command)
	go func() {
		for lines.Scan() {
			var one command
			check(json.Unmarshal(lines.Bytes(), &one))
			commands <- one
		}
		os.Exit(0)
	}()
	c.serve(commands)
}

func (c *client) serve(commands chan command) {
	for {
		if c.consumer == nil {
			if c.carryOut(<-commands) {
				return
			}
			continue
		}
		select {
		case one := <-commands:
			if c.carryOut(one) {
				return
			}
		default:
			c.poll()
		}
	}
}

// carryOut returns whether it was the last command.
func (c *client) carryOut(one command) bool {
	answer := map[string]any{"done": one.Do}
	context, cancel := context.WithTimeout(context.Background(), guard)
	defer cancel()
	switch one.Do {
	case "produce":
		answer["failed"] = c.produce(context, one.Topic, one.Records)
	case "subscribe":
		c.subscribe(one.Topics)
	case "assign":
		c.assign(places(one.Places))
	case "commit":
		check(c.consumer.CommitUncommittedOffsets(context))
	case "committed":
		answer["offsets"] = c.committed(context, places(one.Places))
	case "seek":
		c.seek(placeOf(one.Place))
	case "process":
		time.Sleep(time.Duration(one.Seconds) * time.Second)
	case "pause":
		c.consumer.PauseFetchPartitions(partitions(places(one.Places)))
	case "resume":
		c.consumer.ResumeFetchPartitions(partitions(places(one.Places)))
	case "times":
		answer["offsets"] = c.offsets(context, places(one.Places))
	case "ends":
		answer["offsets"] = c.ends(context, places(one.Places))
	case "close":
		if c.consumer != nil {
			c.consumer.Close()
		}
		if c.producer != nil {
			c.producer.Close()
		}
	}
	say(answer)
	return one.Do == "close"
}

func (c *client) base() []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(c.settings.Servers, ",")...),
		kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(500 * time.Millisecond),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
	}
	if c.settings.User != "" {
		login := plain.Auth{User: c.settings.User, Pass: c.settings.Password}
		options = append(options, kgo.SASL(login.AsMechanism()))
	}
	if c.settings.CA != "" {
		text, err := os.ReadFile(c.settings.CA)
		check(err)
		known := x509.NewCertPool()
		known.AppendCertsFromPEM(text)
		options = append(options, kgo.DialTLSConfig(&tls.Config{RootCAs: known}))
	}
	return options
}

func (c *client) opened(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(c.base(), options...)...)
	check(err)
	return made
}

var codecs = map[string]kgo.CompressionCodec{
	"":       kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func (c *client) produce(context context.Context, topic string, records [][]json.RawMessage) int {
	if c.producer == nil {
		c.producer = c.opened(
			kgo.ProducerBatchCompression(codecs[c.settings.Codec]),
			kgo.RecordPartitioner(asAsked{kgo.StickyKeyPartitioner(nil)}),
			kgo.ProducerLinger(time.Duration(c.settings.LingerMs)*time.Millisecond),
		)
	}
	failed := 0
	done := func(_ *kgo.Record, err error) { // never two at once
		if err != nil {
			fmt.Fprintln(os.Stderr, "produce:", err)
			failed++
		}
	}
	for _, fields := range records {
		var key, value string
		record := &kgo.Record{Topic: topic}
		read(fields, &record.Partition, &key, &value)
		record.Key, record.Value = []byte(key), []byte(value)
		c.producer.Produce(context, record, done)
	}
	check(c.producer.Flush(context))
	return failed
}

// asAsked sends a record to its partition, and one with partition -1 to that of the library's choice.
type asAsked struct{ kgo.Partitioner }

func (p asAsked) ForTopic(topic string) kgo.TopicPartitioner {
	return topicAsAsked{p.Partitioner.ForTopic(topic)}
}

type topicAsAsked struct{ kgo.TopicPartitioner }

func (p topicAsAsked) RequiresConsistency(record *kgo.Record) bool {
	return record.Partition >= 0 || p.TopicPartitioner.RequiresConsistency(record)
}

func (p topicAsAsked) Partition(record *kgo.Record, count int) int {
	if record.Partition >= 0 {
		return int(record.Partition)
	}
	return p.TopicPartitioner.Partition(record, count)
}

var balancers = map[string]func() kgo.GroupBalancer{
	"range":              kgo.RangeBalancer,
	"roundrobin":         kgo.RoundRobinBalancer,
	"sticky":             kgo.StickyBalancer,
	"cooperative-sticky": kgo.CooperativeStickyBalancer,
}

func (c *client) subscribe(topics []string) {
	options := []kgo.Opt{
		kgo.ConsumerGroup(c.settings.Group),
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(c.reset()),
		kgo.SessionTimeout(time.Duration(c.settings.SessionS) * time.Second),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, more map[string][]int32) { c.holds(more, true) }),
		kgo.OnPartitionsRevoked(c.handsOver),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, less map[string][]int32) { c.holds(less, false) }),
	}
	if c.settings.AutoCommit {
		// What was said is committed before another member has the partition.
		options = append(options, kgo.AutoCommitInterval(200*time.Millisecond), kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll())
	} else {
		options = append(options, kgo.DisableAutoCommit())
	}
	if c.settings.Instance != "" {
		options = append(options, kgo.InstanceID(c.settings.Instance))
	}
	if c.settings.Assignor != "" {
		var chosen []kgo.GroupBalancer
		for _, name := range strings.Split(c.settings.Assignor, ",") {
			chosen = append(chosen, balancers[name]())
		}
		options = append(options, kgo.Balancers(chosen...))
	}
	c.consumer = c.opened(options...)
}

func (c *client) reset() kgo.Offset {
	if c.settings.Reset == "latest" {
		return kgo.NewOffset().AtEnd()
	}
	return kgo.NewOffset().AtStart()
}

func (c *client) handsOver(context context.Context, consumer *kgo.Client, less map[string][]int32) {
	if c.settings.AutoCommit {
		check(consumer.CommitMarkedOffsets(context))
	}
	c.holds(less, false)
}

func (c *client) holds(changed map[string][]int32, held bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	for topic, numbers := range changed {
		for _, partition := range numbers {
			if held {
				c.assigned[place{topic: topic, partition: partition}] = true
			} else {
				delete(c.assigned, place{topic: topic, partition: partition})
			}
		}
	}
}

func (c *client) assign(wanted []place) {
	chosen := map[string]map[int32]kgo.Offset{}
	for _, one := range wanted {
		if chosen[one.topic] == nil {
			chosen[one.topic] = map[int32]kgo.Offset{}
		}
		offset := kgo.NewOffset().At(one.offset)
		if one.offset == fromStart {
			offset = kgo.NewOffset().AtStart()
		}
		chosen[one.topic][one.partition] = offset
		c.assigned[place{topic: one.topic, partition: one.partition}] = true
	}
	c.consumer = c.opened(kgo.ConsumePartitions(chosen), kgo.ConsumeResetOffset(c.reset()))
}

func (c *client) seek(to place) {
	offset := kgo.EpochOffset{Epoch: -1, Offset: to.offset}
	c.consumer.SetOffsets(map[string]map[int32]kgo.EpochOffset{to.topic: {to.partition: offset}})
}

func (c *client) poll() {
	context, cancel := context.WithTimeout(context.Background(), pollTime)
	defer cancel()
	fetches := c.consumer.PollRecords(context, 500)
	c.sayAssigned()
	var found [][]any
	fetches.EachRecord(func(one *kgo.Record) {
		found = append(found, []any{one.Topic, one.Partition, one.Offset, text(one.Key), text(one.Value)})
	})
	if len(found) > 0 {
		say(map[string]any{"records": found})
		c.consumer.MarkCommitRecords(fetches.Records()...)
	}
	c.consumer.AllowRebalance()
}

func (c *client) sayAssigned() {
	c.lock.Lock()
	held := make([]place, 0, len(c.assigned))
	for one := range c.assigned {
		held = append(held, one)
	}
	c.lock.Unlock()
	sort.Slice(held, func(a, b int) bool {
		return held[a].topic < held[b].topic || held[a].topic == held[b].topic && held[a].partition < held[b].partition
	})
	rows := [][]any{}
	for _, one := range held {
		rows = append(rows, []any{one.topic, one.partition})
	}
	if now := fmt.Sprint(rows); now != c.said {
		c.said = now
		say(map[string]any{"assigned": rows})
	}
}

func (c *client) committed(context context.Context, asked []place) []int64 {
	request := kmsg.NewPtrOffsetFetchRequest()
	request.Group = c.settings.Group
	for topic, numbers := range partitions(asked) {
		one := kmsg.NewOffsetFetchRequestTopic()
		one.Topic, one.Partitions = topic, numbers
		request.Topics = append(request.Topics, one)
	}
	response, err := request.RequestWith(context, c.consumer)
	check(err)
	check(kerr.ErrorForCode(response.ErrorCode))
	found := map[place]int64{}
	for _, topic := range response.Topics {
		for _, one := range topic.Partitions {
			found[place{topic: topic.Topic, partition: one.Partition}] = one.Offset
		}
	}
	return inOrder(asked, found)
}

func (c *client) ends(context context.Context, asked []place) [][]int64 {
	at := func(when int64) []int64 {
		wanted := make([]place, len(asked))
		for number, one := range asked {
			wanted[number] = place{one.topic, one.partition, when}
		}
		return c.offsets(context, wanted)
	}
	first, last := at(-2), at(-1)
	pairs := [][]int64{}
	for number := range asked {
		pairs = append(pairs, []int64{first[number], last[number]})
	}
	return pairs
}

// offsets asks for the offsets of the times of the places, in milliseconds; -2 is the begin, -1 the end.
func (c *client) offsets(context context.Context, asked []place) []int64 {
	request := kmsg.NewPtrListOffsetsRequest()
	topics := map[string][]kmsg.ListOffsetsRequestTopicPartition{}
	for _, one := range asked {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = one.partition, one.offset
		topics[one.topic] = append(topics[one.topic], partition)
	}
	for topic, wanted := range topics {
		one := kmsg.NewListOffsetsRequestTopic()
		one.Topic, one.Partitions = topic, wanted
		request.Topics = append(request.Topics, one)
	}
	response, err := request.RequestWith(context, c.consumer)
	check(err)
	found := map[place]int64{}
	for _, topic := range response.Topics {
		for _, one := range topic.Partitions {
			check(kerr.ErrorForCode(one.ErrorCode))
			found[place{topic: topic.Topic, partition: one.Partition}] = one.Offset
		}
	}
	return inOrder(asked, found)
}

func inOrder(asked []place, found map[place]int64) []int64 {
	offsets := []int64{}
	for _, one := range asked {
		offsets = append(offsets, found[place{topic: one.topic, partition: one.partition}])
	}
	return offsets
}

func partitions(of []place) map[string][]int32 {
	found := map[string][]int32{}
	for _, one := range of {
		found[one.topic] = append(found[one.topic], one.partition)
	}
	return found
}

func places(rows [][]json.RawMessage) []place {
	var found []place
	for _, row := range rows {
		found = append(found, placeOf(row))
	}
	return found
}

func placeOf(row []json.RawMessage) place {
	var one place
	read(row, &one.topic, &one.partition, &one.offset)
	return one
}

// read reads the fields that are there.
func read(row []json.RawMessage, into ...any) {
	for number, field := range row {
		check(json.Unmarshal(field, into[number]))
	}
}

func text(bytes []byte) any {
	if bytes == nil {
		return nil
	}
	return string(bytes)
}

var speaking sync.Mutex

func say(value map[string]any) {
	speaking.Lock()
	defer speaking.Unlock()
	check(json.NewEncoder(os.Stdout).Encode(value))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
