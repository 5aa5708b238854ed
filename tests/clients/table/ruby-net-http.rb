require 'net/http'

ARGV.each do |url|
  puts "#{Net::HTTP.get_response(URI(url)).code} #{url}"
rescue StandardError => e
  puts "000 #{url} #{e.message}"
end
