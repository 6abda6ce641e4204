package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// batchWait is for the rest of a batch, so that only its size and the end of a command close it.
const batchWait = 10 * time.Second

var codecs = map[string]pulsar.CompressionType{
	"LZ4": pulsar.LZ4, "ZLIB": pulsar.ZLib, "ZSTD": pulsar.ZSTD, "SNAPPY": pulsar.SNAPPY,
}

var access = map[string]pulsar.ProducerAccessMode{
	"Exclusive":        pulsar.ProducerAccessModeExclusive,
	"WaitForExclusive": pulsar.ProducerAccessModeWaitForExclusive,
}

type producer struct{ producer pulsar.Producer }

func newProducer(client pulsar.Client, one command) (*producer, answer, error) {
	options := pulsar.ProducerOptions{
		Topic:                   one.Topic,
		Name:                    one.Name,
		DisableBatching:         one.Batch == 0,
		BatchingMaxMessages:     uint(one.Batch),
		BatchingMaxPublishDelay: batchWait,
		CompressionType:         codecs[one.Codec],
		EnableChunking:          one.Chunking,
		ProducerAccessMode:      access[one.Access],
		SendTimeout:             milliseconds(one.SendTimeoutMs),
	}
	if one.DelayMs > 0 {
		options.BatchingMaxPublishDelay = milliseconds(one.DelayMs)
	}
	if one.DiscoveryS > 0 {
		options.PartitionsAutoDiscoveryInterval = time.Duration(one.DiscoveryS) * time.Second
	}
	made, err := client.CreateProducer(options)
	if err != nil {
		return nil, nil, err
	}
	return &producer{made}, answer{"name": made.Name(), "last": made.LastSequenceID()}, nil
}

func (p *producer) carryOut(one command) (answer, error) {
	switch one.Do {
	case "send":
		return p.send(one.sent())
	case "close":
		p.producer.Close()
		return nil, nil
	}
	return nil, fmt.Errorf("a producer cannot %s", one.Do)
}

func (p *producer) send(messages []message) (answer, error) {
	type outcome struct {
		number int
		result any
	}
	done := make(chan outcome, len(messages))
	for number, one := range messages {
		number := number
		p.producer.SendAsync(context.Background(), one.toSend(), func(id pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				done <- outcome{number, answer{"error": "Error", "text": err.Error()}}
			} else {
				done <- outcome{number, idOf(id)}
			}
		})
	}
	flushed := p.producer.Flush()
	ids := make([]any, len(messages))
	for range messages {
		one := <-done
		ids[one.number] = one.result
	}
	_ = flushed // what was refused is said for each message
	return answer{"ids": ids}, nil
}

func (m message) toSend() *pulsar.ProducerMessage {
	made := &pulsar.ProducerMessage{
		Payload:      m.payload(),
		Key:          m.Key,
		OrderingKey:  m.OrderingKey,
		Properties:   m.Properties,
		SequenceID:   m.Sequence,
		DeliverAfter: milliseconds(m.DelayMs),
	}
	if m.EventMs > 0 {
		made.EventTime = time.UnixMilli(m.EventMs)
	}
	return made
}

func (m message) payload() []byte {
	missing := m.Size - len(m.Value)
	if missing <= 0 {
		return []byte(m.Value)
	}
	var filled strings.Builder
	for number := 0; filled.Len() < missing; number++ {
		fmt.Fprintf(&filled, "%010d", number)
	}
	return []byte(m.Value + filled.String()[:missing])
}
